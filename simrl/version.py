"""The version of SimRL."""

VERSION = "0.1.0"
