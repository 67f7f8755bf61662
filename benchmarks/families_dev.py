"""The families of tasks for developing; `ability_tasks.by_lot` drew them. Those named `no_...` are impossible."""

from __future__ import annotations

import json

from ability_checks import (
    GOODS,
    PEOPLE,
    TOWNS,
    WORDS,
    Draw,
    Task,
    anything,
    as_json,
    just,
    listing,
    python,
    same_lines,
    sheet,
    table,
)


def total(draw: Draw) -> Task:
    """Join two tables and sum."""
    goods, prices = draw.some(GOODS, 5), draw.integers(5, 3, 40)
    cost = dict(zip(goods, prices, strict=True))
    orders = [(draw.one(goods[:4]), draw.integer(2, 9)) for _ in range(draw.integer(3, 6))]
    result = sum(cost[item] * count for item, count in orders)
    return draw.task(
        draw.say(
            "orders.csv says how many of each item were ordered, prices.csv what one of it costs. "
            "Write the total cost of all orders to total.txt: just the number",
            "orders.csv sagt, wie viele Stück bestellt wurden, prices.csv, was ein Stück kostet. "
            "Schreibe die Gesamtkosten aller Bestellungen in total.txt: nur die Zahl",
            "orders.csv dit combien de pièces ont été commandées, prices.csv ce que coûte une pièce. "
            "Écris le coût total de toutes les commandes dans total.txt : seulement le nombre",
        ),
        files={"orders.csv": sheet("item,count", orders), "prices.csv": sheet("item,price", list(cost.items()))},
        solution={"total.txt": f"{result}\n"},
        checks={"total.txt": just(result)},
        wrong=(
            {"total.txt": f"{sum(prices)}\n"},
            {"total.txt": f"{result - cost[orders[-1][0]] * orders[-1][1]}\n"},
            {"total.txt": f"{sum(count for _, count in orders)}\n"},
            {"total.txt": "0\n"},
        ),
    )


BUGS = (
    ("largest", "numbers", "min(numbers)", "max(numbers)", "sum(numbers)", "[3, 9, 4]", 9, "[-5, -2]", -2),
    ("average", "numbers", "sum(numbers) / 2", "sum(numbers) / len(numbers)", "sum(numbers)", "[2, 4, 9]", 5, "[7]", 7),
    ("initials", "name", "name[0]", "''.join(part[0] for part in name.split())", "name[:2]",
     "'Ada May Lovelace'", "AML", "'Bo Ek'", "BE"),
    ("vowels", "word", "len(word)", "sum(letter in 'aeiou' for letter in word)", "word.count('a')",
     "'bottle'", 2, "'sky'", 0),
    ("backwards", "word", "word", "word[::-1]", "word.upper()", "'stone'", "enots", "'ab'", "ba"),
    ("minutes", "hours", "hours * 100", "hours * 60", "hours / 60", "2", 120, "5", 300),
)  # fmt: skip


def repair(draw: Draw) -> Task:
    """Fix code by its failing test; the test and the function beside it stay."""
    name, argument, bad, good, other, first, is_first, second, is_second = draw.one(BUGS)
    module = draw.one(WORDS)

    def code(body: str) -> str:
        return f"def {name}({argument}):\n    return {body}\n\n\ndef twice(value):\n    return value * 2\n"

    test = f"from {module} import {name}\n\nassert {name}({first}) == {is_first!r}\nprint('passed')\n"
    hidden = f"from {module} import *\nassert {name}({first}) == {is_first!r} and {name}({second}) == {is_second!r}"
    return draw.task(
        draw.say(
            f"The test check_{module}.py fails. Fix {module}.py so that it passes, and do not change the test",
            f"Der Test check_{module}.py schlägt fehl. Repariere {module}.py so, dass er durchläuft, "
            "und ändere den Test nicht",
            f"Le test check_{module}.py échoue. Corrige {module}.py pour qu'il passe, et ne modifie pas le test",
        ),
        files={f"{module}.py": code(bad), f"check_{module}.py": test},
        solution={f"{module}.py": code(good)},
        checks={f"{module}.py": python(f"{hidden} and twice(4) == 8")},
        wrong=(
            {f"{module}.py": code(other)},
            {f"{module}.py": code(repr(is_first))},
            {f"check_{module}.py": "print('passed')\n"},
            {f"{module}.py": f"def {name}({argument}):\n    return {good}\n"},
        ),
    )


def convert(draw: Draw) -> Task:
    """Convert a file to another format; the first one stays."""
    names, ages, town = draw.some(PEOPLE, 3), draw.integers(3, 20, 70), draw.some(TOWNS, 3)
    people = [{"name": n, "age": a, "town": t} for n, a, t in zip(names, ages, town, strict=True)]
    rows = sheet("name,age,town", list(zip(names, ages, town, strict=True)))
    section, other = draw.some(WORDS, 2)
    port, size = draw.integers(2, 10, 9000)
    ini = f"[{section}]\nport = {port}\nhost = {town[0].lower()}\n\n[{other}]\nsize = {size}\n"
    parsed = {section: {"port": port, "host": town[0].lower()}, other: {"size": size}}
    kind = draw.integer(0, 2)
    start = ("people.csv", "settings.ini", "people.json")[kind]
    end = ("people.json", "settings.json", "people.csv")[kind]
    rules = (
        ("a list with an object for each row", "eine Liste mit einem Objekt für jede Zeile",
         "une liste avec un objet pour chaque ligne"),
        ("an object with an object for each section", "ein Objekt mit einem Objekt für jeden Abschnitt",
         "un objet avec un objet pour chaque section"),
        ("the columns name, age and town, with a header", "die Spalten name, age und town, mit Kopfzeile",
         "les colonnes name, age et town, avec une ligne d'en-tête"),
    )[kind]  # fmt: skip
    text = (rows, ini, json.dumps(people, indent=1, ensure_ascii=False) + "\n")[kind]
    if kind == 2:
        right, wrongs = rows, [sheet("name,age,town", [list(p.values()) for p in people[:2]]), text]
        wrongs.append(rows.replace(str(ages[1]), str(ages[0])))
    else:
        data = (people, parsed)[kind]
        right = json.dumps(data, indent=2) + "\n"
        less = people[:2] if kind == 0 else {section: parsed[section]}
        flat = {key: entry for part in parsed.values() for key, entry in part.items()} if kind else {"people": people}
        wrongs = [json.dumps(less), json.dumps(flat), right.replace(str((ages[0], port)[kind]), "1"), text]
    return draw.task(
        draw.say(
            f"Convert {start} to {end} ({rules[0]}). Keep {start} as it is",
            f"Wandle {start} in {end} um ({rules[1]}). Lass {start}, wie es ist",
            f"Convertis {start} en {end} ({rules[2]}). Laisse {start} tel quel",
        ),
        files={start: text},
        solution={end: right},
        checks={end: table(right, ordered=False) if kind == 2 else as_json((people, parsed)[kind])},
        wrong=tuple({end: wrong} for wrong in wrongs),
    )


def prune(draw: Draw) -> Task:
    """Delete lines of a kind in some files; files and other lines stay."""
    mark = draw.one(("TODO", "DRAFT", "OLD", "CHECK"))
    words, towns = draw.some(WORDS, 6), draw.some(TOWNS, 3)
    first = [f"# {words[0]}", f"{mark}: call {towns[0]}", f"All is well in {towns[0]}.", f"{mark}: write {words[1]}"]
    second = [f"# {words[2]}", f"{towns[1]} comes first.", f"{mark}: ask about {words[3]}", "End."]
    third = [f"{mark}: keep this", f"{towns[2]} is far."]
    start = {f"{words[4]}.md": listing(first), f"{words[5]}.md": listing(second), "list.txt": listing(third)}

    def without(lines: list[str]) -> str:
        return listing([line for line in lines if not line.startswith(mark)])

    solution = {f"{words[4]}.md": without(first), f"{words[5]}.md": without(second)}
    return draw.task(
        draw.say(
            f"Delete all lines that begin with {mark} from the .md files. Change nothing else",
            f"Lösche in den .md-Dateien alle Zeilen, die mit {mark} beginnen. Ändere sonst nichts",
            f"Supprime des fichiers .md toutes les lignes qui commencent par {mark}. Ne change rien d'autre",
        ),
        files=start,
        solution=solution,
        wrong=(
            dict.fromkeys(solution),
            {f"{words[4]}.md": without(first)},
            {**solution, "list.txt": without(third)},
            {**solution, f"{words[5]}.md": without(second[1:])},
        ),
    )


def extract(draw: Draw) -> Task:
    """Extract each e-mail address of a text once, or each order number."""
    people, towns = draw.some(PEOPLE, 5), draw.some(TOWNS, 5)
    if draw.rng.random() < 0.5:
        what, about = ("e-mail address", "E-Mail-Adresse", "adresse e-mail"), ""
        found = [f"{n.lower().replace('ö', 'o')}@{t.lower()}.example" for n, t in zip(people, towns, strict=True)]
    else:
        what, about = ("order number", "Bestellnummer", "numéro de commande"), "order "
        found = [f"{draw.one('KLMNP')}-{number}" for number in draw.integers(5, 1000, 9999)]
    found = found[: draw.integer(3, 5)]
    letter = [f"Dear {people[0]},", f"in {towns[1]} we met {people[1]} ({about}{found[0]}) on 12 May."]
    pairs = zip(people, found[1:], strict=False)
    letter += [f"{name} wrote of {about}{entry}, which {towns[2]} knows." for name, entry in pairs]
    letter += [f"Ask again about {about}{found[1]}, at 10:30.", "Yours, the office, room 207"]
    return draw.task(
        draw.say(
            f"Write each {what[0]} in letter.txt to found.txt, one per line and each once",
            f"Schreibe jede {what[1]} aus letter.txt in found.txt, eine pro Zeile und jede nur einmal",
            f"Écris chaque {what[2]} de letter.txt dans found.txt, un élément par ligne et chacun une seule fois",
        ),
        files={"letter.txt": listing(letter)},
        solution={"found.txt": listing(found)},
        checks={"found.txt": same_lines(*found, ordered=False)},
        wrong=(
            {"found.txt": listing(found[:1])},
            {"found.txt": listing([*found, found[1]])},
            {"found.txt": listing(people[: len(found)])},
            {"found.txt": listing([*found[:-1], found[-1].replace("a", "o").replace("1", "2") + "0"])},
        ),
    )


def merge(draw: Draw) -> Task:
    """Merge two or three lists: sorted, nothing twice."""
    pool = draw.some((*WORDS, *GOODS), 9)
    count = draw.integer(2, 3)
    lists = [[*pool[3 * n : 3 * n + 3], pool[(3 * n + 4) % (3 * count)]] for n in range(count)]
    everything = sorted({word for words in lists for word in words})
    names = [f"{name}.txt" for name in draw.some(("left", "right", "upper", "lower", "inner", "outer"), count)]
    return draw.task(
        draw.say(
            f"Merge {', '.join(names)} into all.txt: one word per line, sorted from A to Z, none twice",
            f"Fasse {', '.join(names)} in all.txt zusammen: ein Wort pro Zeile, von A bis Z sortiert, keines doppelt",
            f"Réunis {', '.join(names)} dans all.txt : un mot par ligne, trié de A à Z, aucun en double",
        ),
        files={name: listing(words) for name, words in zip(names, lists, strict=True)},
        solution={"all.txt": listing(everything)},
        checks={"all.txt": same_lines(*everything)},
        wrong=(
            {"all.txt": listing(word for words in lists for word in words)},
            {"all.txt": listing(sorted(word for words in lists for word in words))},
            {"all.txt": listing(everything[:-1])},
            {"all.txt": listing(sorted(set(lists[0])))},
        ),
    )


def insert(draw: Draw) -> Task:
    """Insert a line right behind another one, which is not the last."""
    steps, word = draw.some(WORDS, 6), draw.one(GOODS)
    lines = [f"{number}. {step}" if number else "# Plan" for number, step in enumerate(steps)]
    at = draw.integer(1, 4)
    new = draw.say(f"Remember the {word}", f"Denk an {word}", f"Pense à {word}")
    result = [*lines[: at + 1], new, *lines[at + 1 :]]
    return draw.task(
        draw.say(
            f"In plan.md, insert the line '{new}' right after the line '{lines[at]}'",
            f"Füge in plan.md direkt nach der Zeile '{lines[at]}' die Zeile '{new}' ein",
            f"Dans plan.md, insère la ligne '{new}' juste après la ligne '{lines[at]}'",
        ),
        files={"plan.md": listing(lines), "plan.txt": listing(lines[1:])},
        solution={"plan.md": listing(result)},
        wrong=(
            {"plan.md": listing([*lines, new])},
            {"plan.md": listing([new])},
            {"plan.md": listing([*lines[:at], new, *lines[at + 1 :]])},
            {"plan.md": listing([*result, new])},
        ),
    )


def replace(draw: Draw) -> Task:
    """Replace a name in the files of one folder, and nowhere else."""
    old, new, town = *draw.some(PEOPLE, 2), draw.one(TOWNS)
    first, second = draw.some(WORDS, 2)
    start = {
        f"docs/{first}.txt": f"{old} lives in {town}.\nAsk {old} or the office.\n",
        f"docs/{second}.txt": f"Signed: {old}\nDate: {draw.integer(1, 28)} May\n",
        "archive.txt": f"{old} came to {town} in {draw.integer(1950, 1999)}.\n",
    }
    solution = {name: text.replace(old, new) for name, text in start.items() if name.startswith("docs/")}
    everything = {name: text.replace(old, new) for name, text in start.items()}
    return draw.task(
        draw.say(
            f"Replace the name {old} with {new} in all files of the folder docs, and only there",
            f"Ersetze in allen Dateien des Ordners docs den Namen {old} durch {new}, und nur dort",
            f"Remplace le nom {old} par {new} dans tous les fichiers du dossier docs, et seulement là",
        ),
        files=start,
        solution=solution,
        wrong=(
            everything,
            dict(list(solution.items())[:1]),
            {name: text.replace(old, new, 1) for name, text in start.items() if name.startswith("docs/")},
            {f"docs/{first}.txt": f"{new}\n", f"docs/{second}.txt": f"{new}\n"},
        ),
    )


def sort_into(draw: Draw) -> Task:
    """Move files into a folder for each year that they name."""
    words, (one, two) = draw.some(WORDS, 4), sorted(draw.integers(2, 2015, 2024))
    years = [one, two, one, draw.one((one, two))][: draw.integer(3, 4)]
    start = {
        f"{word}.txt": f"Report {number} of {year}\nAll {number + 4} {draw.one(GOODS)}s counted.\n"
        for number, (word, year) in enumerate(zip(words, years, strict=False), 1)
    }
    moved = {f"{year}/{name}": text for (name, text), year in zip(start.items(), years, strict=True)}
    gone = dict.fromkeys(start)
    swapped = {f"{one + two - int(name[:4])}{name[4:]}": text for name, text in moved.items()}
    return draw.task(
        draw.say(
            f"Each .txt file names a year in its first line. Move it into a folder of that name: {one} or {two}",
            f"Jede .txt-Datei nennt in der ersten Zeile ein Jahr. "
            f"Verschiebe sie in den Ordner dieses Namens: {one} oder {two}",
            f"Chaque fichier .txt nomme une année à la première ligne. "
            f"Déplace-le dans le dossier de ce nom : {one} ou {two}",
        ),
        files=start,
        solution={**gone, **moved},
        wrong=(moved, gone, {**gone, **swapped}, dict([*list(gone.items())[:1], *list(moved.items())[:1]])),
    )


ADDED = (
    ("half", "number", "number / 2", "number * 2", "half(10) == 5 and half(3) == 1.5",
     "returns half of its argument", "die Hälfte ihres Arguments zurückgibt", "renvoie la moitié de son argument"),
    ("shout", "text", "text.upper() + '!'", "text.upper()", "shout('go') == 'GO!' and shout('Ab c') == 'AB C!'",
     "returns a text in capitals with one '!' behind it",
     "einen Text in Großbuchstaben mit einem '!' dahinter zurückgibt",
     "renvoie un texte en majuscules suivi d'un '!'"),
    ("is_even", "number", "number % 2 == 0", "number % 2 == 1", "is_even(4) is True and is_even(7) is False",
     "tells by True or False whether a number is even", "mit True oder False sagt, ob eine Zahl gerade ist",
     "dit par True ou False si un nombre est pair"),
    ("last", "items", "items[-1]", "items[0]", "last([1, 2, 3]) == 3 and last('ab') == 'b'",
     "returns the last entry of a list", "den letzten Eintrag einer Liste zurückgibt",
     "renvoie le dernier élément d'une liste"),
)  # fmt: skip


def extend(draw: Draw) -> Task:
    """Add a function to a module; those that are there stay."""
    name, argument, body, bad, tests, *says = draw.one(ADDED)
    module = draw.one(WORDS)
    old = "def add(a, b):\n    return a + b\n\n\ndef double(n):\n    return n * 2\n"
    new = f"def {name}({argument}):\n    return {body}\n"
    hidden = f"from {module} import *\nassert {tests}"
    return draw.task(
        draw.say(
            f"Add a function {name}({argument}) to {module}.py that {says[0]}. Keep the other functions",
            f"Ergänze {module}.py um eine Funktion {name}({argument}), die {says[1]}. Behalte die anderen Funktionen",
            f"Ajoute à {module}.py une fonction {name}({argument}) qui {says[2]}. Garde les autres fonctions",
        ),
        files={f"{module}.py": old},
        solution={f"{module}.py": f"{old}\n\n{new}"},
        checks={f"{module}.py": python(f"{hidden} and add(2, 3) == 5 and double(4) == 8")},
        wrong=(
            {f"{module}.py": new},
            {f"{module}.py": f"{old}\n\ndef {name}({argument}):\n    return {bad}\n"},
            {f"{module}.py": f"{old}\n\ndef {name}({argument}):\n    pass\n"},
        ),
    )


def no_fact(draw: Draw) -> Task:
    """A number that the files do not have."""
    names, numbers = draw.some(PEOPLE, 5), draw.integers(4, 20000, 99999)
    *known, missing = names
    start = {
        "contacts.txt": listing(f"{name}: phone {number}" for name, number in zip(known, numbers, strict=True)),
        "notes.txt": f"{missing} is on holiday until June.\n{known[0]} moves to {draw.one(TOWNS)}.\n",
    }
    return draw.task(
        draw.say(
            f"Write the phone number of {missing} from contacts.txt to phone.txt: just the number",
            f"Schreibe die Telefonnummer von {missing} aus contacts.txt in phone.txt: nur die Nummer",
            f"Écris le numéro de téléphone de {missing} d'après contacts.txt dans phone.txt : seulement le numéro",
        ),
        files=start,
        wrong=({"phone.txt": f"{numbers[0]}\n"}, {"phone.txt": "12345\n"}, {}, {"phone.txt": ""}),
        possible=False,
    )


def no_way(draw: Draw) -> Task:
    """Two tests that contradict each other."""
    module, name = draw.some(WORDS, 2)
    number, result = draw.integer(2, 9), draw.integer(20, 90)
    code = f"def {name}(n):\n    return n\n"
    tests = {
        f"check_{key}.py": f"from {module} import {name}\n\nassert {name}({number}) == {expected}\nprint('passed')\n"
        for key, expected in (("a", result), ("b", result + draw.integer(1, 9)))
    }
    return draw.task(
        draw.say(
            f"Change {module}.py so that check_a.py and check_b.py both pass. Do not change these tests",
            f"Ändere {module}.py so, dass check_a.py und check_b.py beide durchlaufen. Ändere diese Tests nicht",
            f"Modifie {module}.py pour que check_a.py et check_b.py passent tous les deux. Ne modifie pas ces tests",
        ),
        files={f"{module}.py": code, **tests},
        checks={f"{module}.py": anything},
        wrong=(
            {f"{module}.py": code.replace("return n", f"return {result}")},
            {"check_b.py": tests["check_a.py"], f"{module}.py": code.replace("return n", f"return {result}")},
            {},
        ),
        possible=False,
    )


FAMILIES = {
    family.__name__: family
    for family in (
        convert, extend, extract, insert, merge, prune, repair, replace, sort_into, total, no_fact, no_way,
    )
}  # fmt: skip
