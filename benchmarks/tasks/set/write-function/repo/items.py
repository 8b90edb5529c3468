"""The items of a shop, read from CSV."""

import csv
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    name: str
    count: int
    minimum: int
    price_cents: int


def read_items(path):
    """The items of a CSV file with the columns name, count, minimum and price_cents."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            Item(row["name"], int(row["count"]), int(row["minimum"]), int(row["price_cents"]))
            for row in csv.DictReader(file)
        ]
