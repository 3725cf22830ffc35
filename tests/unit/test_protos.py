"""The rules of proto/buf.yaml that matter here, without buf; and that generated code is fresh."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

ROOT = Path(__file__).parents[2]
PROTO_ROOT = ROOT / "proto"
SOURCES = sorted(str(p.relative_to(PROTO_ROOT)) for p in PROTO_ROOT.rglob("*.proto"))

# Field numbers of descriptor.proto, which is how source locations name what they belong to.
MESSAGE, ENUM, SERVICE = 4, 5, 6
MESSAGE_FIELD, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_ONEOF = 2, 3, 4, 8
ENUM_VALUE, SERVICE_METHOD = 2, 2


def compile_file(source, folder):
    from grpc_tools import protoc

    out = folder / "set.binpb"
    builtin = Path(protoc.__file__).parent / "_proto"
    flags = ["--include_source_info", f"--descriptor_set_out={out}"]
    assert protoc.main(["protoc", f"-I{PROTO_ROOT}", f"-I{builtin}", *flags, source]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]


@pytest.fixture(params=SOURCES)
def proto(request, tmp_path):
    return compile_file(request.param, tmp_path)


def elements(proto):
    """(path in the descriptor, name) of everything that must carry a comment."""
    for i, message in enumerate(proto.message_type):
        yield from message_elements((MESSAGE, i), message)
    for i, enum in enumerate(proto.enum_type):
        yield from enum_elements((ENUM, i), enum)
    for i, service in enumerate(proto.service):
        yield (SERVICE, i), service.name
        for j, method in enumerate(service.method):
            yield (SERVICE, i, SERVICE_METHOD, j), f"{service.name}.{method.name}"


def message_elements(path, message):
    if message.options.map_entry:
        return
    yield path, message.name
    for i, field in enumerate(message.field):
        yield (*path, MESSAGE_FIELD, i), f"{message.name}.{field.name}"
    for i, oneof in enumerate(message.oneof_decl):
        if not oneof.name.startswith("_"):  # the compiler's own, for `optional`
            yield (*path, MESSAGE_ONEOF, i), f"{message.name}.{oneof.name}"
    for i, nested in enumerate(message.nested_type):
        yield from message_elements((*path, MESSAGE_NESTED, i), nested)
    for i, enum in enumerate(message.enum_type):
        yield from enum_elements((*path, MESSAGE_ENUM, i), enum)


def enum_elements(path, enum):
    yield path, enum.name
    for i, value in enumerate(enum.value):
        yield (*path, ENUM_VALUE, i), f"{enum.name}.{value.name}"


def all_enums(container):
    yield from container.enum_type
    for message in getattr(container, "message_type", None) or getattr(
        container, "nested_type", ()
    ):
        yield from all_enums(message)


def upper_snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def test_there_is_something_to_check():
    assert "hetero/rpc/draft/v1/draft.proto" in SOURCES


def test_everything_has_a_comment(proto):
    commented = {
        tuple(location.path)
        for location in proto.source_code_info.location
        if location.leading_comments.strip()
    }
    assert [name for path, name in elements(proto) if path not in commented] == []


def test_package_is_the_folder_and_versioned(proto):
    assert proto.package.replace(".", "/") == str(Path(proto.name).parent)
    assert re.fullmatch(r"hetero\.rpc\.[a-z]+\.v\d+", proto.package)


def test_enum_values_are_prefixed_and_zero_is_unspecified(proto):
    for enum in all_enums(proto):
        prefix = upper_snake(enum.name)
        assert enum.value[0].name == f"{prefix}_UNSPECIFIED"
        assert enum.value[0].number == 0
        assert all(value.name.startswith(prefix + "_") for value in enum.value)


def test_names_follow_the_standard(proto):
    for _, name in elements(proto):
        owner, _, member = name.partition(".")
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", owner), name
        lower_snake = re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", member)
        assert not member or member[0].isupper() or lower_snake, name


def test_each_rpc_has_its_own_request_and_response(proto):
    used = []
    for service in proto.service:
        assert service.name.endswith("Service")
        for method in service.method:
            used += [method.input_type, method.output_type]
            for kind, name in (("Request", method.input_type), ("Response", method.output_type)):
                short = name.rpartition(".")[2]
                assert short in (f"{method.name}{kind}", f"{service.name}{method.name}{kind}")
    assert len(used) == len(set(used))


def test_durations_and_sizes_carry_a_unit(proto):
    """A field that speaks of time or size names its unit, whoever adds it later."""
    needs_unit = re.compile(r"(timeout|deadline|interval|latency|delay|duration|size)$")
    named = {name.partition(".")[2] for _, name in elements(proto)}
    assert {name for name in named if needs_unit.search(name)} <= {"vocab_size"}


def test_proto_folder_holds_no_python():
    assert list(PROTO_ROOT.rglob("*.py")) == []


def test_generated_code_is_fresh():
    run = subprocess.run(
        [sys.executable, ROOT / "scripts" / "gen_protos.py", "--check"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
