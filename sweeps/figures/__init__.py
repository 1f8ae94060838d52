"""The article's figures."""
