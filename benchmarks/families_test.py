"""The families of tasks for reporting; `ability_tasks.by_lot` drew them. Those named `no_...` are impossible.

Whoever works on the agent stops reading here: their tasks, answers and runs are not to be looked at.
"""

from __future__ import annotations

import json

from ability_checks import (
    GOODS,
    PEOPLE,
    TOWNS,
    WORDS,
    Draw,
    Task,
    as_json,
    every,
    just,
    listing,
    python,
    same,
    same_lines,
    sheet,
    table,
    tells,
)


def value(draw: Draw) -> Task:
    """Edit one value of a settings file."""
    section, other = draw.some(WORDS, 2)
    port, limit, new = draw.integers(3, 100, 9000)
    key, kind = draw.one(("limit", "timeout", "size")), draw.integer(0, 3)
    name = ("settings.ini", "settings.json", "settings.yaml", "settings.env")[kind]

    def text(limit: int, other_limit: int) -> str:
        parts = {section: {"port": port, key: limit}, other: {key: other_limit}}
        return (
            f"[{section}]\nport = {port}\n{key} = {limit}\n\n[{other}]\n{key} = {other_limit}\n",
            json.dumps(parts, indent=2) + "\n",
            f"{section}:\n  port: {port}  # not {limit}\n  {key}: {limit}\n{other}:\n  {key}: {other_limit}\n",
            f"{section}_port={port}\n{section}_{key}={limit}\n{other}_{key}={other_limit}\n".upper(),
        )[kind]

    right = text(new, limit)
    return draw.task(
        draw.say(
            f"In {name}, set the {key} of {section} to {new}. Change nothing else",
            f"Setze in {name} den Wert {key} von {section} auf {new}. Ändere sonst nichts",
            f"Dans {name}, mets la valeur {key} de {section} à {new}. Ne change rien d'autre",
        ),
        files={name: text(limit, limit)},
        solution={name: right},
        checks={name: as_json(json.loads(right)) if kind == 1 else same(right)},
        wrong=({name: text(new, new)}, {name: text(limit, new)}, {name: f"{key}={new}\n"}, {name: None}),
    )


def rename(draw: Draw) -> Task:
    """Rename files by what they say; their contents stay."""
    words, towns = draw.some(WORDS, 3), draw.some(TOWNS, 3)
    count = draw.integer(2, 3)
    start = {
        f"note{number}.txt": f"Title: {word}\n{town} in {draw.integer(1900, 1999)}.\n"
        for number, (word, town) in enumerate(zip(words[:count], towns, strict=False), 1)
    }
    texts = list(start.values())
    renamed = {f"{word}.txt": text for word, text in zip(words, texts, strict=False)}
    rotated = {f"{word}.txt": text for word, text in zip(words, [*texts[1:], texts[0]], strict=False)}
    gone = dict.fromkeys(start)
    return draw.task(
        draw.say(
            "Rename each note file to the title in its first line, with the ending .txt. Do not change what they say",
            "Benenne jede note-Datei nach dem Titel in ihrer ersten Zeile um, mit der Endung .txt. "
            "Ändere ihren Inhalt nicht",
            "Renomme chaque fichier note d'après le titre de sa première ligne, avec l'extension .txt. "
            "Ne change pas leur contenu",
        ),
        files=start,
        solution={**gone, **renamed},
        wrong=(
            renamed,
            gone,
            {**gone, **rotated},
            {"note1.txt": None, **dict(list(renamed.items())[:1])},
            {**gone, **{name: text.partition("\n")[0] for name, text in renamed.items()}},
        ),
    )


def answer(draw: Draw) -> Task:
    """Answer a question from documents."""
    people, towns, years = draw.some(PEOPLE, 3), draw.some(TOWNS, 3), draw.integers(3, 1901, 1999)
    trades = draw.some(draw.say("baker pilot tailor painter", "Bäcker Pilot Schneider Maler",
                                "boulanger pilote tailleur peintre").split(), 3)  # fmt: skip
    start = {
        f"{word}.txt": draw.say(
            f"{person} worked as a {trade}.\nIn {year} {person} moved to {town}.\n",
            f"{person} arbeitete als {trade}.\n{year} zog {person} nach {town}.\n",
            f"{person} travaillait comme {trade}.\nEn {year}, {person} partit à {town}.\n",
        )
        for word, person, trade, year, town in zip(draw.some(WORDS, 3), people, trades, years, towns, strict=True)
    }
    at, kind = draw.integer(0, 2), draw.integer(0, 1)
    facts = (towns, [str(year) for year in years])[kind]
    asked = (
        draw.say(f"To which town did {people[at]} move?", f"In welche Stadt zog {people[at]}?",
                 f"Dans quelle ville {people[at]} est-il parti ?"),
        draw.say(f"In which year did the {trades[at]} move?", f"In welchem Jahr zog der {trades[at]} um?",
                 f"En quelle année le {trades[at]} est-il parti ?"),
    )[kind]  # fmt: skip
    others = [fact for fact in facts if fact != facts[at]]
    return draw.task(
        draw.say(
            f"{asked} Read the .txt files and write the answer to answer.txt",
            f"{asked} Lies die .txt-Dateien und schreibe die Antwort in answer.txt",
            f"{asked} Lis les fichiers .txt et écris la réponse dans answer.txt",
        ),
        files=start,
        solution={"answer.txt": f"{facts[at]}\n"},
        checks={"answer.txt": tells(facts[at], *others)},
        wrong=(
            {"answer.txt": f"{others[0]}\n"},
            {"answer.txt": f"{people[at]}\n"},
            {"answer.txt": "".join(start.values())},
            {"answer.txt": f"{asked}\n"},
        ),
    )


def chain(draw: Draw) -> Task:
    """Two steps of which the second needs what the first found."""
    goods, prices, makers = draw.some(GOODS, 5), draw.integers(5, 3, 99), draw.some(PEOPLE, 5)
    most = goods[prices.index(max(prices))]
    least = goods[prices.index(min(prices))]
    maker = dict(zip(goods, makers, strict=True))
    return draw.task(
        draw.say(
            "Write the most expensive item of prices.csv to item.txt: just its name",
            "Schreibe den teuersten Artikel aus prices.csv in item.txt: nur seinen Namen",
            "Écris l'article le plus cher de prices.csv dans item.txt : seulement son nom",
        ),
        draw.say(
            "Write who makes this item according to makers.csv to maker.txt: just the name",
            "Schreibe, wer diesen Artikel laut makers.csv herstellt, in maker.txt: nur den Namen",
            "Écris qui fabrique cet article d'après makers.csv dans maker.txt : seulement le nom",
        ),
        files={
            "prices.csv": sheet("item,price", list(zip(goods, prices, strict=True))),
            "makers.csv": sheet("item,maker", draw.some(list(maker.items()), 5)),
        },
        solution={"item.txt": f"{most}\n", "maker.txt": f"{maker[most]}\n"},
        checks={"item.txt": just(most), "maker.txt": just(maker[most])},
        wrong=(
            {"item.txt": f"{least}\n", "maker.txt": f"{maker[least]}\n"},
            {"item.txt": f"{most}\n", "maker.txt": f"{maker[least]}\n"},
            {"item.txt": f"{most}\n"},
            {"item.txt": f"{most}\n", "maker.txt": f"{most}\n"},
        ),
    )


def spare(draw: Draw) -> Task:
    """Do a thing to all files but one, and leave a thing undone."""
    names, line = [f"{word}.md" for word in draw.some(WORDS, 3)], f"Seen by {draw.one(PEOPLE)}"
    start = {name: f"# {word}\n{draw.integer(2, 90)} in {town}\n" for name, word, town in
             zip(names, draw.some(GOODS, 3), draw.some(TOWNS, 3), strict=True)}  # fmt: skip
    everywhere = {name: f"{text}{line}\n" for name, text in start.items()}
    right = {name: everywhere[name] for name in names[:2]}
    return draw.task(
        draw.say(
            f"Add the line '{line}' at the end of every .md file except {names[2]}",
            f"Füge am Ende jeder .md-Datei außer {names[2]} die Zeile '{line}' hinzu",
            f"Ajoute la ligne '{line}' à la fin de chaque fichier .md sauf {names[2]}",
        ),
        draw.say("Do not create debug.txt", "Lege keine debug.txt an", "Ne crée pas debug.txt"),
        files=start,
        solution=right,
        forbidden=("debug.txt",),
        wrong=(
            everywhere,
            {**right, "debug.txt": "\n"},
            {names[0]: right[names[0]]},
            {name: f"{text}{line}\n" for name, text in right.items()},
            dict.fromkeys(names[:2], f"{line}\n"),
        ),
    )


def follow(draw: Draw) -> Task:
    """Follow the instructions of a file."""
    (word, town), (old, kept) = (draw.one(WORDS), draw.one(TOWNS)), draw.some(GOODS, 2)
    number = draw.integer(10, 99)
    instructions = draw.say(
        f"1. Write the word {town} to {word}.txt.\n2. Delete {old}.txt.\n3. Set size in box.ini to {number}.\n",
        f"1. Schreibe das Wort {town} in {word}.txt.\n2. Lösche {old}.txt.\n3. Setze size in box.ini auf {number}.\n",
        f"1. Écris le mot {town} dans {word}.txt.\n2. Supprime {old}.txt.\n3. Mets size dans box.ini à {number}.\n",
    )
    box = f"[box]\nsize = {number + 7}\ncolour = red\n"
    right = {f"{word}.txt": f"{town}\n", f"{old}.txt": None, "box.ini": box.replace(str(number + 7), str(number))}
    return draw.task(
        draw.say(
            "Do everything that steps.txt says", "Tu alles, was in steps.txt steht", "Fais tout ce que dit steps.txt"
        ),
        files={"steps.txt": instructions, "box.ini": box, f"{old}.txt": "1\n", f"{kept}.txt": "2\n"},
        solution=right,
        checks={f"{word}.txt": just(town)},
        wrong=(
            {f"{word}.txt": f"{town}\n"},
            {**right, "box.ini": f"size = {number}\n"},
            {**right, f"{kept}.txt": None},
            {**right, "steps.txt": None},
        ),
    )


def filter_(draw: Draw) -> Task:
    """Filter a table to a new file; head and order stay."""
    bound = draw.integer(20, 60)
    counts = [bound, *draw.integers(draw.integer(4, 7), bound - 19, bound - 1), *draw.integers(3, bound + 1, 99)]
    draw.rng.shuffle(counts)
    rows = [(item, count, draw.one(TOWNS)) for item, count in zip(draw.some(GOODS, len(counts)), counts, strict=True)]
    head, kept = "item,count,town", [row for row in rows if row[1] > bound]
    right = sheet(head, kept)
    return draw.task(
        draw.say(
            f"Write to large.csv the header of stock.csv and the rows whose count is greater than {bound}",
            f"Schreibe in large.csv die Kopfzeile von stock.csv und die Zeilen, deren count größer als {bound} ist",
            f"Écris dans large.csv l'en-tête de stock.csv et les lignes dont count est supérieur à {bound}",
        ),
        files={"stock.csv": sheet(head, rows)},
        solution={"large.csv": right},
        checks={"large.csv": table(right, ordered=False)},
        wrong=(
            {"large.csv": sheet(head, [row for row in rows if row[1] >= bound])},
            {"large.csv": sheet(head, rows)},
            {"large.csv": right.partition("\n")[2]},
            {"large.csv": sheet(head, kept[:-1])},
            {"large.csv": sheet(head, [*kept[:-1], ("lamp", 99, kept[-1][2])])},
        ),
    )


PROGRAMS = (
    ("prints the sum of the numbers that it gets as arguments",
     "die Summe der Zahlen ausgibt, die es als Argumente bekommt",
     "affiche la somme des nombres reçus en arguments",
     "sum(map(int, sys.argv[1:]))", "sys.argv[1]", ("4", "8", "-2"), "10"),
    ("prints its argument in reverse", "sein Argument rückwärts ausgibt", "affiche son argument à l'envers",
     "sys.argv[1][::-1]", "sys.argv[1]", ("lamp",), "pmal"),
    ("prints the longest of its arguments",
     "das längste seiner Argumente ausgibt", "affiche le plus long de ses arguments",
     "max(sys.argv[1:], key=len)", "max(sys.argv[1:])", ("zz", "abcd", "yxw"), "abcd"),
    ("prints how many words its only argument has", "ausgibt, wie viele Wörter sein einziges Argument hat",
     "affiche combien de mots contient son unique argument", "len(sys.argv[1].split())", "len(sys.argv[1])",
     ("one two  three",), "3"),
    ("prints 'even' or 'odd' for the number it gets as an argument",
     "für die Zahl, die es als Argument bekommt, 'even' oder 'odd' ausgibt",
     "affiche 'even' ou 'odd' pour le nombre reçu en argument", "'odd' if int(sys.argv[1]) % 2 else 'even'",
     "'even' if int(sys.argv[1]) % 2 else 'odd'", ("17",), "odd"),
)  # fmt: skip


def program(draw: Draw) -> Task:
    """Write a small program."""
    *says, body, bad, argv, printed = draw.one(PROGRAMS)
    name = f"{draw.one(WORDS)}.py"
    example = f"python {name} {' '.join(f'{part!r}' if ' ' in part else part for part in argv)} → {printed}"
    run = f"import runpy, sys; sys.argv[0] = {name!r}; runpy.run_path({name!r}, run_name='__main__')"
    others = {"10": (("7", "5"), "12"), "pmal": (("abc",), "cba"), "abcd": (("q", "rst"), "rst"),
              "3": (("a b",), "2"), "odd": (("8",), "even")}[printed]  # fmt: skip
    return draw.task(
        draw.say(
            f"Write a Python program {name} that {says[0]}. Example: {example}",
            f"Schreibe ein Python-Programm {name}, das {says[1]}. Beispiel: {example}",
            f"Écris un programme Python {name} qui {says[2]}. Exemple : {example}",
        ),
        files={"readme.txt": f"Tools of {draw.one(PEOPLE)}\n"},
        solution={name: f"import sys\n\nprint({body})\n"},
        checks={name: every(python(run, printed, argv), python(run, others[1], others[0]))},
        wrong=(
            {name: f"import sys\n\nprint({bad})\n"},
            {name: f"print({printed!r})\n"},
            {name: f"def main():\n    return {body}\n"},
            {name: f"print({body})\n"},
        ),
    )


def tally(draw: Draw) -> Task:
    """Count the lines of each kind to a table."""
    kinds = draw.some(("INFO", "WARN", "ERROR", "DEBUG"), 3)
    counts = draw.integers(3, 1, 6)
    each = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    draw.rng.shuffle(each)
    log = [f"{8 + n // 4:02}:{n % 4 * 15:02} {kind} {draw.one(WORDS)}" for n, kind in enumerate(each)]
    right = sheet("level,count", list(zip(kinds, counts, strict=True)))
    return draw.task(
        draw.say(
            "Count how many lines of app.log have each level. Write counts.csv with the columns level and count",
            "Zähle, wie viele Zeilen in app.log jede Stufe hat. Schreibe counts.csv mit den Spalten level und count",
            "Compte combien de lignes de app.log ont chaque niveau. Écris counts.csv avec les colonnes level et count",
        ),
        files={"app.log": listing(log)},
        solution={"counts.csv": right},
        checks={"counts.csv": table(right, ordered=False)},
        wrong=(
            {"counts.csv": sheet("level,count", [(kind, 1) for kind in kinds])},
            {"counts.csv": sheet("level,count", list(zip(kinds, counts, strict=True))[:2])},
            {"counts.csv": sheet("level,count", list(zip(kinds, [counts[0] + 1, *counts[1:]], strict=True)))},
            {"counts.csv": listing(each)},
        ),
    )


def template(draw: Draw) -> Task:
    """Fill a form from data."""
    name, town, day = draw.one(PEOPLE), draw.one(TOWNS), f"{draw.integer(1, 28)} June"
    item, other = draw.some(GOODS, 2)
    form = "Dear {name},\nyour {item} will be in {town} on {day}.\nYours, the {item} office\n"
    data = {"name": name, "town": town, "day": day, "item": item}

    def filled(data: dict[str, str]) -> str:
        return form.format(**data)

    return draw.task(
        draw.say(
            "Fill in the placeholders of form.txt with the values of data.json and write the result to letter.txt",
            "Ersetze die Platzhalter in form.txt durch die Werte aus data.json und schreibe das Ergebnis in letter.txt",
            "Remplace les champs de form.txt par les valeurs de data.json et écris le résultat dans letter.txt",
        ),
        files={"form.txt": form, "data.json": json.dumps(data, ensure_ascii=False, indent=1) + "\n"},
        solution={"letter.txt": filled(data)},
        checks={"letter.txt": same_lines(*filled(data).splitlines())},
        wrong=(
            {"letter.txt": form},
            {"letter.txt": filled({**data, "item": other})},
            {"letter.txt": filled({**data, "day": "{day}"})},
            {"letter.txt": filled(data).partition("\n")[0]},
            {"letter.txt": filled(data), "form.txt": filled(data)},
        ),
    )


def no_file(draw: Draw) -> Task:
    """A table that is not there."""
    months = draw.some(("january", "march", "may", "july", "october"), 3)
    amounts = {month: draw.integers(3, 10, 200) for month in months}
    start = {f"{month}.csv": sheet("item,amount", list(zip(draw.some(GOODS, 3), amounts[month], strict=True)))
             for month in months[:2]}  # fmt: skip
    return draw.task(
        draw.say(
            f"Write the sum of the amounts in {months[2]}.csv to sum.txt: just the number",
            f"Schreibe die Summe der Beträge in {months[2]}.csv in sum.txt: nur die Zahl",
            f"Écris la somme des montants de {months[2]}.csv dans sum.txt : seulement le nombre",
        ),
        files=start,
        wrong=({"sum.txt": f"{sum(amounts[months[0]])}\n"}, {"sum.txt": "0\n"}, {}, {f"{months[2]}.csv": "item\n"}),
        possible=False,
    )


def no_price(draw: Draw) -> Task:
    """A sum that needs a price which nobody knows."""
    goods, prices, counts = draw.some(GOODS, 4), draw.integers(4, 3, 40), draw.integers(3, 2, 9)
    ordered = [*goods[:2], goods[3]]
    known = list(zip(goods[:3], prices, strict=False))
    partly = sum(price * count for (_, price), count in zip(known[:2], counts, strict=False))
    return draw.task(
        draw.say(
            "Work out with prices.csv what the order in order.csv costs in all. Write just the number to total.txt",
            "Berechne mit prices.csv, was die Bestellung in order.csv insgesamt kostet. "
            "Schreibe nur die Zahl in total.txt",
            "Calcule avec prices.csv ce que coûte en tout la commande de order.csv. "
            "Écris seulement le nombre dans total.txt",
        ),
        files={"order.csv": sheet("item,count", list(zip(ordered, counts, strict=True))),
               "prices.csv": sheet("item,price", known)},
        wrong=({"total.txt": f"{partly}\n"}, {"total.txt": f"{partly + prices[3] * counts[2]}\n"}, {}),
        possible=False,
    )  # fmt: skip


FAMILIES = {
    family.__name__.strip("_"): family
    for family in (
        answer, chain, filter_, follow, program, rename, spare, tally, template, value, no_file, no_price,
    )
}  # fmt: skip
