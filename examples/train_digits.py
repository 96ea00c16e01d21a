"""Train a small convolutional network on scikit-learn's handwritten digits (1,797 real images of 8 x 8 pixels).

    python examples/train_digits.py                  # on npu:0
    python examples/train_digits.py --device cpu     # the same numbers on the CPU

Prints the loss of each of the first 20 steps and, last, the share of test images that are read correctly.
"""
import argparse
import json
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = x.flatten(1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def load(test_share=0.2):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]
    split = int(len(images) * (1 - test_share))
    return images[:split], labels[:split], images[split:], labels[split:]


def train(device, epochs, batch_size, while_exists=None):
    torch.manual_seed(0)
    train_x, train_y, test_x, test_y = load()
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    order = torch.Generator().manual_seed(1)
    losses, epoch = [], 0
    while epoch < epochs or (while_exists and os.path.exists(while_exists)):
        epoch += 1
        for index in torch.randperm(len(train_x), generator=order).split(batch_size):
            x = train_x[index].to(device)
            y = train_y[index].to(device)
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            if len(losses) < 20:
                losses.append(loss.item())
    with torch.no_grad():
        guess = model(test_x.to(device)).argmax(dim=1).cpu()
    return losses, epoch, (guess == test_y).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="npu:0")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--while-exists", metavar="FILE", help="go on with further epochs while this file exists")
    parser.add_argument("--json", help="write losses and the result to this file")
    args = parser.parse_args()

    losses, epochs, correct = train(args.device, args.epochs, args.batch_size, args.while_exists)
    print("first losses:", " ".join(f"{loss:.4f}" for loss in losses))
    print(f"test images read correctly: {100 * correct:.2f} % (on {args.device}, {epochs} epochs)")
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"device": args.device, "epochs": epochs, "losses": losses, "correct": correct}, f)


if __name__ == "__main__":
    main()
