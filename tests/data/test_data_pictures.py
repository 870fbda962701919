"""Image columns: rows hold references, the bytes stay on disk, and what is wrong with a picture is one line with file
and row.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from kvv.core import Fragment, Picture, PictureForm
from kvv.data import DataError, canonical_sha256
from kvv.data.local import read_path
from kvv.data.pictures import Shelf, from_cell, pictures_of, sent_digest, with_pictures
from kvv.data.spec import DatasetSpec, check_rows, load_spec, questions_note
from kvv.protocol.encode import encode
from kvv.storage.store.codec import tag, untag

COLUMNS = {"id": "string", "image": "image", "other": "image?"}


def spec(**fields: Any) -> DatasetSpec:
    return DatasetSpec(title="t", licence="l", source="s", fixture="f", **{"columns": COLUMNS, **fields})


def png(seed: int = 0, size: int = 12) -> bytes:
    buffer = io.BytesIO()
    Image.frombytes("L", (size, size), hashlib.shake_128(bytes([seed % 256, seed // 256])).digest(size * size)).save(
        buffer, "PNG", compress_level=1
    )
    return buffer.getvalue()


def parquet(folder: Path, pictures: list[bytes], name: str = "test.parquet", **how: Any) -> Path:
    rows = [
        {"id": str(n), "image": {"bytes": data, "path": f"{n}.png"}, "other": None} for n, data in enumerate(pictures)
    ]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.string()), ("image", kind), ("other", kind)]))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / name, **how)
    return folder / name


def failure(path: Path, wanted: DatasetSpec | None = None) -> str:
    with pytest.raises(DataError) as caught:
        check_rows(read_path(path, wanted or spec()), wanted or spec(), str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def body(*pictures: Picture) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": picture}} for picture in pictures]
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": [*parts, {"type": "text", "text": "?"}]},
        ],
    }


def shown(sent: Any) -> list[bytes]:
    """The pictures' bytes in an encoded body."""
    parsed = json.loads(b"".join(encode(sent).parts))
    urls = [part["image_url"]["url"] for part in parsed["messages"][1]["content"] if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


# --- rows ------------------------------------------------------------------------------------------


def test_every_container_gives_the_same_pictures_and_the_same_digest(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pictures = [png(n) for n in range(3)]
    found = {"parquet": read_path(parquet(tmp_path, pictures), spec())}

    features = datasets.Features({"id": datasets.Value("string"), "image": datasets.Image(), "other": datasets.Image()})
    rows = {"id": ["0", "1", "2"], "image": [{"bytes": data, "path": None} for data in pictures], "other": [None] * 3}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "saved"))
    found["saved"] = read_path(tmp_path / "saved", spec())

    folder = tmp_path / "files"
    (folder / "pictures").mkdir(parents=True)
    for number, data in enumerate(pictures):
        (folder / "pictures" / f"{number}.png").write_bytes(data)
    lines = [{"id": str(n), "image": {"path": f"pictures/{n}.png"} if n else f"pictures/{n}.png"} for n in range(3)]
    (folder / "test.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found["files"] = read_path(folder, spec())

    for rows_of in found.values():
        check_rows(rows_of, spec(), "x")
        assert [row["image"].digest for row in rows_of] == [hashlib.sha256(data).hexdigest() for data in pictures]
        assert shown(with_pictures(body(*(row["image"] for row in rows_of)))) == pictures
    assert len({canonical_sha256(rows_of, COLUMNS) for rows_of in found.values()}) == 1
    other = read_path(parquet(tmp_path / "other", [png(9), *pictures[1:]]), spec())
    assert canonical_sha256(other, COLUMNS) != canonical_sha256(found["parquet"], COLUMNS)


def test_memory_does_not_grow_with_the_pictures(tmp_path: Path) -> None:
    """40 pictures of 250 kB in the hub's row groups: 10 MB on disk, a few of them in memory."""
    path = parquet(tmp_path, [png(n, 500) for n in range(40)], row_group_size=10)
    assert path.stat().st_size > 9_000_000
    arrow_before = pa.total_allocated_bytes()
    tracemalloc.start()
    rows = read_path(path, spec())
    # pyarrow's read-ahead would keep all ten megabytes in a pool of its own
    assert pa.total_allocated_bytes() - arrow_before < 2_000_000
    kept, peak = tracemalloc.get_traced_memory()
    for row in rows:
        with_pictures(body(row["image"]))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    assert peak < 6_000_000
    assert after < 1_000_000


def test_the_official_json_stands_beside_its_folder_of_pictures(tmp_path: Path) -> None:
    wanted = load_spec("ocrbench")
    (tmp_path / "OCRBench_Images/IIIT5K").mkdir(parents=True)
    (tmp_path / "OCRBench_Images/IIIT5K/1.png").write_bytes(png())
    row = {
        "dataset_name": "IIIT5K",
        "id": 7,
        "image_path": "IIIT5K/1.png",
        "question": "what is written in the image?",
        "answers": "CENTRE",
    }
    (tmp_path / "OCRBench.json").write_text(json.dumps([{**row, "type": "Regular Text Recognition"}]))
    for place in (tmp_path, tmp_path / "OCRBench.json"):
        rows = read_path(place, wanted)
        check_rows(rows, wanted, "x")
        assert (rows[0]["dataset"], rows[0]["answer"], rows[0]["image"].width) == ("IIIT5K", ["CENTRE"], 12)
    assert (
        questions_note(rows, wanted) == "; questions other than in the official OCRBench.json (MultimodalOCR 794c36d)"
    )


# --- what is wrong ---------------------------------------------------------------------------------


def test_bad_pictures_are_named_by_file_row_and_column(tmp_path: Path) -> None:
    good = png()
    cut = png(1, 40)[:200]
    header = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + good[24:29]
    bomb = good[:12] + header + zlib.crc32(header).to_bytes(4, "big") + good[33:]
    for number, (data, said) in enumerate(
        [
            (b"no picture", "is no picture of a known format"),
            (b"", "is empty"),
            (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
            (cut, "cannot be decoded"),
            (bomb, "decompression bomb"),
        ]
    ):
        path = parquet(tmp_path / str(number), [good, good, data])
        message = failure(path)
        assert message.startswith(f"{path}: row 3: column 'image': ")
        assert said in message


def test_a_missing_column_and_a_null_picture_are_named(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"id": "1"}\n')
    assert "row 1: column 'image' is missing" in failure(path)
    path.write_text('{"id": "1", "image": null}\n')
    assert "row 1: column 'image' should be image, is NoneType" in failure(path)
    path.write_text('{"id": "1", "image": {"path": null, "bytes": null}}\n')
    assert "column 'image' should be image" in failure(path)


def test_picture_files_that_are_absent_or_pointers_are_named(tmp_path: Path) -> None:
    path = tmp_path / "test.jsonl"
    path.write_text('{"id": "1", "image": "a.png"}\n')
    assert "line 1: column 'image': there is no picture 'a.png'" in failure(path)
    (tmp_path / "a.png").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "column 'image': a.png is a Git LFS pointer" in failure(path)


def test_rows_cannot_reach_pictures_outside_of_their_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(png())
    (tmp_path / "set").mkdir()
    path = tmp_path / "set/test.jsonl"
    for name in ("../secret.png", str(tmp_path / "secret.png"), "a\0b", "x" * 5000):
        path.write_text(json.dumps({"id": "1", "image": name}) + "\n")
        message = failure(path)
        assert "column 'image'" in message
    path.write_text(json.dumps({"id": "1", "image": "../secret.png"}) + "\n")
    assert "lies outside of" in failure(path)
    # a row of a hub's file has no folder at all
    assert from_cell({"bytes": None, "path": str(tmp_path / "secret.png")}, "x", None) == str(tmp_path / "secret.png")


# --- requests --------------------------------------------------------------------------------------


def test_a_request_gets_its_pictures_in_order_and_everything_else_unchanged() -> None:
    shelf = Shelf()
    first, second = shelf.keep(png(1), "a"), shelf.keep(png(2), "b")
    asked = body(second, first, second)
    sent = with_pictures(asked, shelf)
    assert shown(sent) == [png(2), png(1), png(2)]
    assert pictures_of(asked) == [second, first, second]
    assert pictures_of(sent) == []
    assert sent["messages"][0] is asked["messages"][0]
    assert isinstance(sent["messages"][1]["content"][0]["image_url"]["url"], Fragment)
    for nothing in (b"raw", {}, {"messages": "x"}, {"messages": [None, {"content": [None, {"image_url": "x"}]}]}):
        assert pictures_of(nothing) == []


def test_a_picture_is_sent_in_its_own_form() -> None:
    shelf = Shelf()
    picture = shelf.keep(png(1, 40), "a")
    jpeg = Picture(**{**{name: getattr(picture, name) for name in picture.__slots__}, "form": PictureForm.KVV_JPEG})
    sent = shown(with_pictures(body(picture, jpeg), shelf))
    assert sent[0].startswith(b"\x89PNG")
    assert sent[1].startswith(b"\xff\xd8")
    assert (
        sent_digest(jpeg, shelf) == hashlib.sha256(sent[1]).hexdigest() != sent_digest(picture, shelf) == picture.digest
    )


def test_a_file_that_changed_after_it_was_read_is_not_sent(tmp_path: Path) -> None:
    shelf = Shelf()
    path = tmp_path / "a.png"
    path.write_bytes(png(1))
    picture = shelf.keep_file(path, "rows: row 4")
    path.write_bytes(png(2))
    with pytest.raises(DataError, match="rows: row 4: its bytes have changed"):
        shelf.read(picture)
    path.unlink()
    with pytest.raises(DataError, match="rows: row 4: No such file"):
        shelf.read(picture)
    with pytest.raises(DataError, match="has not read its data set"):
        Shelf().read(picture)


def test_a_truncated_jpeg_passes_its_header_and_is_stopped_before_it_is_sent() -> None:
    buffer = io.BytesIO()
    Image.effect_noise((64, 64), 60).convert("RGB").save(buffer, "JPEG")
    shelf = Shelf()
    picture = shelf.keep(buffer.getvalue()[: buffer.tell() // 2], "rows: row 9")
    with pytest.raises(DataError, match="rows: row 9: cannot be decoded"):
        with_pictures(body(picture), shelf)


def test_a_temporary_file_is_shared_and_leaves_no_name(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    pictures = [shelf.keep(png(n), str(n)) for n in (1, 2, 1)]
    assert [shelf.read(picture) for picture in pictures] == [png(1), png(2), png(1)]
    assert pictures[0].digest == pictures[2].digest
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 0 or not list(tmp_path.iterdir())


def test_an_unresolved_picture_is_never_serialised() -> None:
    with pytest.raises(ValueError, match="Picture"):
        encode(body(Shelf().keep(png(), "x")))


def test_the_store_keeps_a_reference_exactly() -> None:
    picture = Shelf().keep(png(), "rows: row 1")
    inputs = {"body": body(picture), "plain": 1}
    written = json.loads(json.dumps(tag(inputs)))
    assert untag(written) == inputs
    assert len(json.dumps(written)) < 1_000
