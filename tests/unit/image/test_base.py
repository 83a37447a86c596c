"""Base images that are refused by their names; tests/integration looks into real ones."""

import docker
import pytest
from jetship.errors import ConfigError, JetshipError
from jetship.image.base import require_base


class NoEngine:
    """An engine that is asked for an image answers that it failed."""

    class images:  # noqa: N801
        @staticmethod
        def get(name):
            raise docker.errors.APIError("asked", explanation=name)


@pytest.mark.parametrize(
    ("platform", "base", "said"),
    [
        ("jetpack-5.1", "nc3/l4t-pytorch:r32.2-pth1.0", "is of L4T r32, and jetpack-5.1 is r35"),
        ("jetpack-6.2", "x/l4t-pytorch:cu12-r35.4.1", "is of L4T r35, and jetpack-6.2 is r36"),
        ("jetpack-4.6", "x/l4t-ml:r36.2.0-py3", "is of L4T r36, and jetpack-4.6 is r32"),
    ],
)
def test_a_base_of_another_l4t_is_refused_by_its_tag(catalog, platform, base, said):
    with pytest.raises(ConfigError) as caught:
        require_base(NoEngine(), base, catalog.platform(platform))
    assert caught.value.what == f"the base image {base} {said}"
    assert caught.value.fix


@pytest.mark.parametrize(
    ("platform", "base"),
    [
        ("jetpack-4.6", "nc3/l4t-pytorch:r32.2-pth1.0"),
        ("jetpack-5.1", "x/l4t-base:r35.1.0"),
        ("jetpack-5.1", "x/mine:1.0"),
        ("debian-12", "nc3/l4t-pytorch:r32.2-pth1.0"),
        ("jetpack-5.1", "registry.example:5000/r32.1/mine:latest"),
    ],
)
def test_any_other_base_is_for_the_engine_to_tell(catalog, platform, base):
    with pytest.raises(JetshipError, match="engine failed"):
        require_base(NoEngine(), base, catalog.platform(platform))
