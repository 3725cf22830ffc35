"""The target model: checks on a checkpoint, its loading, and one forward step."""
