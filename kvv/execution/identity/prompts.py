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

#: the same small task twice: as harnesses and public benchmarks put it, and as somebody might who has never seen one;
#: and the word, or words, one of which a right answer holds, in lower case
PROBES = (
    ("Reply with exactly: ready", "I only want one word back from you, and that word is 'ready'.", "ready"),
    ("What is six times seven?", "Six boxes hold seven eggs each. How many eggs do I have?", "42"),
    ("What is the capital of France?", "Which city do the French call their capital?", "paris"),
    ("Say the word 'banana' and nothing else.", "Please give me just this fruit's name: banana.", "banana"),
    (
        "What is 17 + 25? Put your final answer within \\boxed{}.",
        "I had 17 coins and found 25 more. How many are that?",
        "42",
    ),
    (
        "Answer with the option's letter from the given choices directly. Which is a planet? A. Mars B. Oslo C. Rhine",
        "Mars, Oslo and the Rhine: one of them circles the sun as a planet. Name it.",
        "a|mars",
    ),
    ("Count from 1 to 5.", "Write the first five whole numbers, starting at one, in digits.", "5"),
    ("Spell the word 'cat' backwards.", "If I read 'cat' from right to left, which letters do I get in a row?", "tac"),
    ("Translate 'good morning' into German.", "My neighbour from Berlin greets me early in the day. How?", "morgen"),
    ("What is the chemical symbol for gold?", "Which two letters stand for gold in the periodic table?", "au"),
    ("How many days are in a week?", "From one Monday to the next, how many days go by? In digits.", "7|seven"),
    ("What color is the sky on a clear day?", "You look up at noon and there is no cloud: which colour?", "blue"),
)
