# SPDX-License-Identifier: Apache-2.0
"""That the kernel source has the text of each planted bug once, and that the bug changes it: so a stale plant shows
where nothing is compiled for AMD.

usage: test_plant_texts.py SOURCE
"""
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
source = Path(sys.argv.pop(1))

from plants import PLANTS  # noqa: E402


class PlantTexts(unittest.TestCase):
    def test_each_is_in_the_source_once(self):
        for plant in PLANTS:
            with self.subTest(plant.name):
                text = (source / plant.file).read_text(encoding="utf-8")
                self.assertNotEqual(plant.apply(text), text)


if __name__ == "__main__":
    unittest.main()
