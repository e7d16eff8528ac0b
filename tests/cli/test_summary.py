# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations


def test_summary_writes_a_page(invoke, record, tmp_path):
    status, output = invoke("summary", "record.jsonl", "--output", "page.md")
    assert (status, output) == (0, "wrote page.md")
    text = (tmp_path / "page.md").read_text()
    assert "    gems-overrides summary record.jsonl --output page.md\n" in text
    assert "| record.jsonl | core | 1 | 2026-11-20 12:00 | code 1111111111111111, commit abc | 1.0% |" in text
    status, output = invoke("summary", "record.jsonl", "--short", "--dtype", "bfloat16")
    assert "| softmax | 1 | 2.00x | - | - |" in output
    assert invoke("summary", "record.jsonl", "--dtype", "int8")[0] == 2
