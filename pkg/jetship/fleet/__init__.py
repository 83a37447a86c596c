"""From images to devices: what runs on them, and how a rollout goes."""
