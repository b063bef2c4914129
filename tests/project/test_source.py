"""Reading keeps every byte, and whatever cannot be read is refused with a message and a hint."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsdp_migrate.project.source import (
    Source,
    UnreadableError,
    UnwritableError,
    check_syntax,
    encode,
    read_source,
    source_of,
)

HERE = Path("train.py")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x = 1",
        b"x = 1\n",
        b"x = 1\r\ny = 2\r\n",
        b"x = 1\ry = 2\r",
        b"x = 1\r\ny = 2\nz = 3\r",
        b"\tx = 1\x0c\n",
        b"\xef\xbb\xbfx = 1\n",
        "x = 'é – 漢'\n".encode(),
        b"# -*- coding: latin-1 -*-\nx = '\xe9'\n",
        b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nx = '\x80'\n",
        "# coding: shift_jis\nx = '表'\n".encode("shift_jis"),
        b"\xef\xbb\xbf# coding: utf-8\nx = 1\n",
        "x = ' \x85'\n".encode(),
    ],
)
def test_a_file_comes_back_byte_for_byte(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(data)
    source = read_source(path)
    assert encode(source, source.text) == data
    assert source.path == path


def test_newlines_are_not_translated() -> None:
    assert source_of(HERE, b"a\r\nb\rc\n").text == "a\r\nb\rc\n"


def test_the_byte_order_mark_is_not_text() -> None:
    source = source_of(HERE, b"\xef\xbb\xbfx = 1\n")
    assert source.bom
    assert source.text == "x = 1\n"


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"x = 1\ny = '\xe9'\n", "line 2: byte 0xe9 is not UTF-8", "latin-1"),
        (b"# \xe9\n", "line 1: byte 0xe9 is not UTF-8", "latin-1"),
        (b"# coding: ascii\nx = '\xe9'\n", "not ASCII, which the file declares", "declaration"),
        (b"# coding: no-such-codec\n", "declares an encoding that cannot be used", "UTF-8"),
        (b"# coding: rot13\n", "cannot be", "UTF-8"),
        (b"\xef\xbb\xbf# coding: latin-1\n", "declares an encoding that cannot be used", "UTF-8"),
        (b"x = 1\0", "null bytes", "--exclude"),
        (b"\x89PNG\r\n\x1a\n\0\0", "null bytes", "--exclude"),
        (b"# coding: utf-7\nx = 1 # +AGE-\n", "byte for byte", "UTF-8"),
    ],
)
def test_what_cannot_be_read_says_why_and_what_to_do(data: bytes, message: str, hint: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        source_of(HERE, data)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_notebook_is_no_program_although_its_text_parses(tmp_path: Path) -> None:
    notebook = tmp_path / "train.ipynb"
    notebook.write_text('{"cells": []}')
    with pytest.raises(UnreadableError) as caught:
        read_source(notebook)
    assert "nbconvert" in caught.value.hint


def test_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="does not exist"):
        read_source(tmp_path / "nowhere.py")


def test_a_directory(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="is a directory"):
        read_source(tmp_path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_source(pipe)


@pytest.mark.parametrize("name", ["a\0b.py", "x" * 5000 + ".py"])
def test_a_path_that_cannot_be_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnreadableError, match="cannot be read"):
        read_source(tmp_path / name)


def test_a_symlink_that_leads_nowhere(tmp_path: Path) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(link)
    with pytest.raises(UnreadableError):
        read_source(link)


def test_text_that_the_encoding_cannot_hold_is_refused() -> None:
    source = source_of(HERE, b"# coding: latin-1\n")
    with pytest.raises(UnwritableError, match="does not fit into iso-8859-1"):
        encode(source, source.text + "# 漢\n")


@pytest.mark.parametrize("text", ["", "x = 1\n", "match x:\n    case 1: pass\n", 'x = "\\d"\n'])
def test_syntax_that_is_fine(text: str) -> None:
    check_syntax(Source(HERE, text))


@pytest.mark.parametrize("text", ["def f(:\n", "print 'x'\n", "x = 1\n  y = 2\n", "(" * 2000])
def test_syntax_that_is_not(text: str) -> None:
    with pytest.raises(UnreadableError):
        check_syntax(Source(HERE, text))


@given(st.binary())
def test_random_bytes_are_read_exactly_or_refused(data: bytes) -> None:
    try:
        source = source_of(HERE, data)
    except UnreadableError:
        return
    assert encode(source, source.text) == data


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0")), st.booleans())
def test_random_text_is_read_exactly_or_refused(text: str, bom: bool) -> None:
    data = (b"\xef\xbb\xbf" if bom else b"") + text.encode()
    try:
        source = source_of(HERE, data)
    except UnreadableError:
        return
    assert encode(source, source.text) == data


@example("iso2022_jp", b"\x1b\x80")
@given(st.sampled_from(["latin-1", "cp1252", "utf-7", "shift_jis", "iso2022_jp", "unicode_escape", "hex"]), st.binary())
def test_random_bytes_in_a_declared_encoding(encoding: str, body: bytes) -> None:
    data = b"# coding: " + encoding.encode() + b"\n" + body
    try:
        source = source_of(HERE, data)
    except UnreadableError:
        return
    assert encode(source, source.text) == data
