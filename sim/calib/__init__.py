"""Numbers that the card models rest on, one TOML file a card, each with its public source."""
