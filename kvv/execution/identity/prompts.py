"""The prompts of `kvv identity`: open ones, whose answers differ each time, in several languages and kinds of text."""

from __future__ import annotations

#: changing one makes references of other versions useless: they name a digest of all of them
PROMPTS = (
    "Continue this story in your own way: The lighthouse keeper found a letter that was addressed to nobody.",
    "Invent a recipe with three ingredients that are seldom combined.",
    "Write the first lines of a poem about a railway station at night.",
    "Describe an animal that does not exist.",
    "Name a small town that you make up, and say what it is known for.",
    "Tell me something surprising about rivers.",
    "Write a short dialogue between a baker and a customer who has lost his hat.",
    "Suggest an unusual hobby and say why it is worth trying.",
    "Write a Python function that does something useful with a list of dates. Begin with the code.",
    "Write a shell one-liner that you find elegant, and explain it.",
    "Give an example of a bug that is hard to find, in any programming language.",
    "Write a SQL query over two tables that you invent.",
    "写一个关于雨天的小故事的开头。",
    "用一句话描述一种不存在的水果。",
    "Erzähle den Anfang einer Geschichte über eine vergessene Uhr.",
    "Raconte le début d'une histoire qui se passe dans une bibliothèque.",
    "Escribe el comienzo de un cuento sobre un mapa equivocado.",
    "Give a random fact from the history of science, in one paragraph.",
    "Make up a proverb and explain what it means.",
    "Write a product review of an object that nobody needs.",
)
