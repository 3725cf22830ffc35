"""The artefact: same bytes each time, all or nothing on disk, every damage noticed."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from support.llama_files import TINY, random_weights, write_checkpoint

from fpga.program import isa
from fpga.program.artefact import load_artefact
from fpga.program.build import build_artefact
from hetero.core.errors import ArtefactError, ConfigError, ModelError, PairError

TOKENIZER = "ab" * 32


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"), TINY, random_weights(TINY))


@pytest.fixture
def artefact_dir(checkpoint, tmp_path):
    out = tmp_path / "draft"
    build_artefact(checkpoint, out, target_tokenizer_sha256=TOKENIZER)
    return out


def _files(path):
    return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


def test_build_reports_what_it_wrote(checkpoint, tmp_path):
    steps = []
    info = build_artefact(
        checkpoint,
        tmp_path / "draft",
        target_tokenizer_sha256=TOKENIZER,
        progress=lambda done, total: steps.append((done, total)),
    )
    artefact = load_artefact(tmp_path / "draft")
    assert info.sha256 == artefact.sha256
    assert info.sha256 == hashlib.sha256((tmp_path / "draft/draft.json").read_bytes()).hexdigest()
    assert info.params == sum(w.size for w in random_weights(TINY).values())
    assert info.instructions == len(artefact.program) == 2 + 3 * 12 + 4
    assert steps == [(i, 5) for i in range(1, 6)]
    assert artefact.manifest.target.vocab_size == 200
    # int4 nibbles and group scales of the layers, int8 embedding, mantissas, gammas
    layer_weights = 3 * (128 * 64 + 64 * 64 + 192 * 64 + 64 * 96)
    rows = 3 * (128 + 64 + 192 + 64) + 200
    expected = layer_weights // 2 + layer_weights // 32 + 200 * 64 + 2 * rows + 2 * 64 * 7
    assert info.weight_bytes == expected


def test_the_same_checkpoint_gives_the_same_bytes(checkpoint, artefact_dir, tmp_path):
    build_artefact(checkpoint, tmp_path / "again", target_tokenizer_sha256=TOKENIZER)
    assert _files(tmp_path / "again") == _files(artefact_dir)


def test_sharded_and_single_files_give_the_same_program_and_weights(artefact_dir, tmp_path):
    weights = random_weights(TINY)
    sharded = write_checkpoint(tmp_path / "sharded", TINY, weights, shards=3)
    build_artefact(sharded, tmp_path / "again", target_tokenizer_sha256=TOKENIZER)
    ours, theirs = _files(artefact_dir), _files(tmp_path / "again")
    assert ours["weights.bin"] == theirs["weights.bin"]
    assert ours["program.bin"] == theirs["program.bin"]


def test_regions_are_aligned_and_disjoint(artefact_dir):
    artefact = load_artefact(artefact_dir)
    end = 0
    for region in artefact.manifest.regions:
        assert region.offset_bytes == -(-end // 4096) * 4096
        end = region.offset_bytes + region.size_bytes
    assert end <= artefact.image.size
    assert not artefact.image.flags.writeable


def test_an_old_artefact_is_replaced_and_nothing_else(checkpoint, artefact_dir, tmp_path):
    before = load_artefact(artefact_dir).sha256
    info = build_artefact(checkpoint, artefact_dir, target_tokenizer_sha256="cd" * 32)
    assert info.sha256 == load_artefact(artefact_dir).sha256 != before
    assert [p.name for p in tmp_path.iterdir()] == ["draft"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="exists and is no draft artefact"):
        build_artefact(checkpoint, tmp_path / "mine", target_tokenizer_sha256=TOKENIZER)
    assert (tmp_path / "mine/thesis.txt").exists()
    (artefact_dir / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="exists and is no draft artefact"):
        build_artefact(checkpoint, artefact_dir, target_tokenizer_sha256=TOKENIZER)
    assert (artefact_dir / "thesis.txt").exists()


def test_an_output_behind_a_link_is_written_where_it_points(checkpoint, artefact_dir, tmp_path):
    """Replacing the link itself would leave what it names as it was."""
    (tmp_path / "link").symlink_to(artefact_dir)
    (tmp_path / "dangling").symlink_to(tmp_path / "later")
    for name in ("link", "dangling"):
        build_artefact(checkpoint, tmp_path / name, target_tokenizer_sha256="cd" * 32)
        assert (tmp_path / name).is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dangling", "draft", "later", "link"]
    for place in (artefact_dir, tmp_path / "later"):
        assert load_artefact(place).manifest.target.tokenizer_sha256 == "cd" * 32


@pytest.mark.parametrize("where", ["file/draft", "a" * 300, "/proc/nothing/draft"])
def test_an_output_that_cannot_be_written_is_one_error(checkpoint, tmp_path, where):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"^output .*Name a (new )?directory"):
        build_artefact(checkpoint, tmp_path / where, target_tokenizer_sha256=TOKENIZER)


def test_two_builds_to_one_place_do_not_disturb_each_other(artefact_dir):
    """Two builds to one place: both succeed, and leave one whole artefact."""
    artefact = load_artefact(artefact_dir)
    files = _files(artefact_dir)
    job = """
import sys
from pathlib import Path
from fpga.program.artefact import load_artefact, write_artefact
source = load_artefact(Path(sys.argv[1]))
program, weights = (Path(sys.argv[1], name).read_bytes() for name in ("program.bin", "weights.bin"))
for _ in range(40):
    write_artefact(Path(sys.argv[2]), source.manifest, program=program, weights=weights)
"""
    place = artefact_dir.parent / "shared"
    command = [sys.executable, "-c", job, str(artefact_dir), str(place)]
    writers = [subprocess.Popen(command) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert _files(place) == files
    assert load_artefact(place).sha256 == artefact.sha256
    assert sorted(p.name for p in artefact_dir.parent.iterdir()) == ["draft", "shared"]


def test_a_failed_build_leaves_nothing(tmp_path):
    weights = random_weights(TINY)
    del weights["model.norm.weight"]
    source = write_checkpoint(tmp_path / "source", TINY, weights)
    with pytest.raises(ModelError, match=r"model\.norm\.weight is missing"):
        build_artefact(source, tmp_path / "draft", target_tokenizer_sha256=TOKENIZER)
    assert [p.name for p in tmp_path.iterdir()] == ["source"]


def test_an_interrupted_write_leaves_the_old_artefact(checkpoint, artefact_dir, monkeypatch):
    before = _files(artefact_dir)

    def no_space(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fpga.program.artefact._write_durably", no_space)
    with pytest.raises(ConfigError, match=r"output .*draft: No space left on device"):
        build_artefact(checkpoint, artefact_dir, target_tokenizer_sha256="cd" * 32)
    assert _files(artefact_dir) == before
    assert len(list(artefact_dir.parent.iterdir())) == 1


@pytest.mark.parametrize("name", ["program.bin", "weights.bin"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "append", "remove"])
def test_every_damaged_file_is_noticed(artefact_dir, name, damage):
    file = artefact_dir / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "truncate":
        del data[len(data) // 2 :]
    elif damage == "append":
        data += b"\0"
    file.write_bytes(data)
    if damage == "remove":
        file.unlink()
    with pytest.raises(ArtefactError, match=f"{name}.*Build it again"):
        load_artefact(artefact_dir)


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda text: text[: len(text) // 2], "not JSON"),
        (lambda text: "", "not JSON"),
        (lambda text: "[1]", "not a draft's manifest"),
        (lambda text: text.replace("hetero-draft", "other"), "not a draft's manifest"),
        (lambda text: text.replace('"vector_words"', '"vector_wordz"'), "has no vector_words"),
        (lambda text: text.replace('"rope_base"', '"rope_bass"'), "shape has no rope_base"),
        (lambda text: text.replace('"files"', '"fails"'), "does not describe program.bin"),
    ],
)
def test_a_damaged_manifest_is_noticed(artefact_dir, damage, message):
    file = artefact_dir / "draft.json"
    file.write_text(damage(file.read_text()))
    with pytest.raises(ArtefactError, match=message):
        load_artefact(artefact_dir)


def _entries(value, path=()):
    """Paths of everything in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in items:
        yield (*path, key)
        if isinstance(entry, dict | list):
            yield from _entries(entry, (*path, key))


def test_no_edit_of_the_manifest_gets_past_the_loader(artefact_dir):
    """Every entry, replaced by every kind of value: an ArtefactError, or nothing that matters.

    The rest of the manifest has no hash of its own, and addresses are computed from it.
    """
    file = artefact_dir / "draft.json"
    text = file.read_text()
    whole = load_artefact(artefact_dir)
    document = json.loads(text)
    # Only said, never used; and what a build may freely choose.
    told = {"bounds", "labels", "num_params", "weight_bytes", "weight_bits", "head_bits"}
    free = {"checkpoint_sha256", "rope_base", "rms_norm_eps", "tied_embedding", "kind", "name"}
    for path in _entries(document):
        if path[0] == "regions" and path[1:2] > (2,):
            continue  # all alike
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        value = holder[path[-1]]
        others = [None, "x", -1, 0, 1, 1.5, True, [], {}, 1 << 70, [[]], {"a": 1}]
        if type(value) is int:
            others += [value - 1, value + 1, value * 2, value // 2]
        for other in others:
            holder[path[-1]] = other
            file.write_text(json.dumps(document))
            try:
                loaded = load_artefact(artefact_dir)
            except ArtefactError:
                continue
            unused = path[0] in told or path[-1] in free
            larger = path in (("vector_words",), ("target", "vocab_size")) and other >= value
            foreign = path == ("target", "tokenizer_sha256")
            assert loaded.program == whole.program
            assert unused or larger or foreign or other == value, (path, other)
        holder[path[-1]] = value


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"vector_words": 128}, r"L00\.\w+: word \d+ of 128 in vector memory"),
        ({"vector_words": 383}, "383 words of vector memory are no multiple of 128"),
        ({"shape.head_dim": 64}, "head_dim is 16, the shape says 64"),
        ({"shape.num_layers": 2}, "3 layers, the shape says 2"),
        ({"shape.max_context_tokens": 129}, "rope_row: no region of"),
        ({"target.vocab_size": 100}, "may draft token 199, the target has 100"),
        ({"regions": []}, "embed: no region of"),
    ],
)
def test_a_manifest_that_contradicts_its_program_is_refused(artefact_dir, changes, message):
    file = artefact_dir / "draft.json"
    document = json.loads(file.read_text())
    for path, value in changes.items():
        *outer, name = path.split(".")
        (document[outer[0]] if outer else document)[name] = value
    file.write_text(json.dumps(document))
    with pytest.raises(ArtefactError, match=message):
        load_artefact(artefact_dir)


def test_no_artefact_at_all(tmp_path):
    with pytest.raises(ArtefactError, match=r"no readable draft\.json"):
        load_artefact(tmp_path / "nothing")


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("format_version", 2, "format version 2, this hetero reads 1"),
        ("isa_version", isa.ISA_VERSION + 1, "isa_version is 3"),
        ("arithmetic_version", 9, "arithmetic_version is 9"),
        ("tables_sha256", "00" * 32, "tables_sha256 is '00"),
    ],
)
def test_another_version_is_refused_by_name(artefact_dir, name, value, message):
    file = artefact_dir / "draft.json"
    document = json.loads(file.read_text())
    document[name] = value
    file.write_text(json.dumps(document))
    with pytest.raises(ArtefactError, match=message):
        load_artefact(artefact_dir)


def test_a_foreign_target_is_refused(artefact_dir):
    load_artefact(artefact_dir, target_tokenizer_sha256=TOKENIZER, target_vocab_size=200)
    with pytest.raises(PairError, match="built for tokenizer abababababab, the target has cdcd"):
        load_artefact(artefact_dir, target_tokenizer_sha256="cd" * 32)
    for size in (199, 201):
        with pytest.raises(PairError, match=f"vocabulary of 200 tokens, the target has {size}"):
            load_artefact(artefact_dir, target_vocab_size=size)


def test_a_draft_with_too_few_tokens_is_refused(checkpoint, tmp_path):
    with pytest.raises(PairError, match="embeds 200 tokens, the target's tokenizer has 201"):
        build_artefact(
            checkpoint, tmp_path / "d", target_tokenizer_sha256=TOKENIZER, target_vocab_size=201
        )


def test_a_matrix_that_could_overflow_stops_the_build(checkpoint, tmp_path, monkeypatch):
    # No matrix up to the card's width can reach 2^31 as quantised here: lower the limit.
    monkeypatch.setattr("fpga.program.bounds.ACCUMULATOR_LIMIT", 1_000_000)
    with pytest.raises(ModelError, match=r"L00\.\w+: a row of \d+ columns may sum to \d+"):
        build_artefact(checkpoint, tmp_path / "draft", target_tokenizer_sha256=TOKENIZER)


def test_kv_layout_refuses_more_context_than_the_draft_has(artefact_dir):
    artefact = load_artefact(artefact_dir)
    assert artefact.kv_layout(2, 128).context_tokens == 128
    with pytest.raises(ConfigError, match=r"context of 129 tokens.*1\.\.128"):
        artefact.kv_layout(2, 129)


def test_addresses_in_the_program_are_those_of_the_regions(artefact_dir):
    artefact = load_artefact(artefact_dir)
    offsets = {region.offset_bytes // 64 for region in artefact.manifest.regions}
    for instruction in artefact.program:
        for name in isa.operand_names(type(instruction)):
            if name.endswith("_beat"):
                assert getattr(instruction, name) in offsets | {isa.NO_BEAT}
    assert np.unique(list(artefact.manifest.labels)).size == len(artefact.program)
