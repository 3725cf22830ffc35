"""A model name or path becomes a directory, or one clear error."""

import pytest

from hetero.core.errors import ConfigError, ModelError, UnknownModelError
from hetero.models import registry
from hetero.models.manifest import Manifest, describe_files, write_manifest


@pytest.fixture
def fetched(tmp_path):
    """A directory in the cache as a finished pull leaves it."""
    place = registry.model_dir(registry.DEFAULT_MODEL, tmp_path)
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(bytes(100))
    about = dict(name=place.name, params=1, license="Apache-2.0", source={})
    write_manifest(place, Manifest(files=describe_files(place), **about))
    return place


def test_cache_place_prefers_own_variable_then_xdg_then_home(tmp_path):
    both = {"HETERO_CACHE": str(tmp_path / "own"), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    assert registry.default_cache_dir(both) == tmp_path / "own"
    assert registry.default_cache_dir({"XDG_CACHE_HOME": "/x"}) == registry.Path("/x/hetero")
    assert registry.default_cache_dir({}) == registry.Path.home() / ".cache" / "hetero"


def test_draft_is_a_path_or_a_name_in_the_cache(tmp_path, monkeypatch):
    built = tmp_path / "drafts" / "mine"
    built.mkdir(parents=True)
    assert registry.resolve_draft("mine", cache_dir=tmp_path) == built
    assert registry.resolve_draft(str(built)) == built
    monkeypatch.setenv("HOME", str(tmp_path))
    assert registry.resolve_draft("~/drafts/mine") == built
    with pytest.raises(ConfigError, match="draft = 'yours': no such folder, and none of that name"):
        registry.resolve_draft("yours", cache_dir=tmp_path)


def test_directory_is_taken_as_it_is(tiny_checkpoint):
    assert registry.resolve_model(str(tiny_checkpoint)) == tiny_checkpoint


def test_bare_name_of_a_directory_here_is_a_path(tiny_checkpoint, monkeypatch):
    monkeypatch.chdir(tiny_checkpoint.parent)
    assert registry.resolve_model("model") == registry.Path("model")


@pytest.mark.parametrize("spelt", ["SmolLM2-135M-Instruct", "smollm2-135m-instruct"])
def test_fetched_model_resolves_whatever_its_case(spelt, fetched, tmp_path):
    assert registry.resolve_model(spelt, cache_dir=tmp_path) == fetched


def damage_cut_short(place):
    (place / "model.safetensors").write_bytes(bytes(99))


def damage_missing(place):
    (place / "config.json").unlink()


def damage_no_manifest(place):
    (place / "hetero_manifest.json").unlink()


def damage_manifest_cut_short(place):
    manifest = place / "hetero_manifest.json"
    manifest.write_text(manifest.read_text()[:-20])


@pytest.mark.parametrize(
    "damage", [damage_cut_short, damage_missing, damage_no_manifest, damage_manifest_cut_short]
)
def test_half_fetched_model_is_refused_with_the_fix(damage, fetched, tmp_path):
    damage(fetched)
    with pytest.raises(ModelError, match="Run `hetero models pull SmolLM2-135M-Instruct`"):
        registry.resolve_model(registry.DEFAULT_MODEL, cache_dir=tmp_path)


@pytest.mark.parametrize(
    "name,kind,expected",
    [
        ("SmolLM2-135M-Instruct", UnknownModelError, "Run `hetero models pull SmolLM2-135M-"),
        ("SmolLM-135M", UnknownModelError, "Did you mean 'SmolLM2-135M-Instruct'?"),
        ("gpt-5", UnknownModelError, "Or give the path of a local"),
        ("", UnknownModelError, "not a model that can be fetched"),
        ("no/such/place", UnknownModelError, "no such directory"),
        ("..", ModelError, "config.json is missing"),
    ],
)
def test_what_can_not_be_resolved_names_the_fix(name, kind, expected, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(kind) as caught:
        registry.resolve_model(name, cache_dir=tmp_path)
    assert type(caught.value) is kind
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
