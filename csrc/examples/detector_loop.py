"""A detector's loop: frames through FrameIngest, duplicates out by fused_attn_nms.

    python csrc/examples/detector_loop.py

The frames and the network are made up; what counts is the way from the camera to the kept boxes, on
which nothing waits for the GPU but the last line of the loop.
"""

import argparse

import torch

import jetops

FRAMES, BOXES = 30, 500


def camera():
    """Stands for a driver that fills a buffer of its own."""
    for _ in range(FRAMES):
        yield torch.randint(255, (3, 270, 480), dtype=torch.uint8)


class Detector(torch.nn.Module):
    """Boxes, their scores, and how much each box attends to every other."""

    def __init__(self):
        super().__init__()
        self.features = torch.nn.AdaptiveAvgPool2d((8, 8))
        self.boxes = torch.nn.Linear(192, BOXES * 4)
        self.scores = torch.nn.Linear(192, BOXES)
        self.query = torch.nn.Linear(192, BOXES * 16)

    def forward(self, frame):
        features = self.features(frame.float() / 255).flatten()
        corner, side = self.boxes(features).reshape(BOXES, 4).split(2, 1)
        boxes = torch.cat([corner * 400, corner * 400 + side.abs() * 200 + 40], 1)
        query = self.query(features).reshape(BOXES, 16)
        return boxes, self.scores(features).sigmoid(), torch.softmax(query @ query.t(), 1)


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    detector = Detector().to(device).eval()
    with torch.no_grad(), jetops.FrameIngest(camera(), device, depth=3) as frames:
        for frame in frames:
            boxes, scores, attn_map = detector(frame.tensor)
            keep = jetops.fused_attn_nms(boxes, scores, attn_map, 0.5)
            print(f"frame {frame.index}: {int(keep.sum())} of {BOXES} boxes kept")


if __name__ == "__main__":
    main()
