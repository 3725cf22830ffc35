"""The compiled draft model: instruction set, memory layout, artefact, compiler."""
