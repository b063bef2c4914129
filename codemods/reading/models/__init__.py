"""The classes and objects of models: what they are made of, and which of their parts are wrapped."""
