"""More families of tasks, of many kinds and file formats. Those named `no_...` are impossible."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from ability_checks import (
    GOODS,
    PEOPLE,
    TOWNS,
    WORDS,
    Check,
    Draw,
    Task,
    every,
    just,
    leaves,
    lines_of,
    listing,
    python,
    read,
    same_lines,
    sheet,
)


def raise_version(draw: Draw) -> Task:
    """Raise a version in several files, but neither in the history nor where another package has the same one."""
    package, other = draw.some(WORDS, 2)
    major, minor, patch = draw.integer(1, 4), draw.integer(1, 8), draw.integer(1, 9)
    old = f"{major}.{minor}.{patch}"
    new = draw.one((f"{major}.{minor}.{patch + 1}", f"{major}.{minor + 1}.0", f"{major + 1}.0.0"))

    def project(own: str, foreign: str = old) -> str:
        dependencies = f'dependencies = ["{other}=={foreign}"]'
        return f'[project]\nname = "{package}"\nversion = "{own}"\nrequires-python = ">=3.11"\n{dependencies}\n'

    def code(own: str) -> str:
        return f'"""The package {package}."""\n\n__version__ = "{own}"\n'

    def readme(own: str, foreign: str = old) -> str:
        install = f"Install it with `pip install {package}=={own}`."
        return f"# {package}\n\n{install}\n\n{package} {own} needs {other} {foreign} or later.\n"

    history = f"## {old}\n\n- Counts each {draw.one(GOODS)}\n\n## {major}.{minor}.0\n\n- First release\n"
    names = ("pyproject.toml", f"{package}/__init__.py", "README.md")
    start = dict(zip(names, (project(old), code(old), readme(old)), strict=True))
    solution = dict(zip(names, (project(new), code(new), readme(new)), strict=True))
    return draw.task(
        draw.say(
            f"Raise the version of the package {package} from {old} to {new}, everywhere the files name it. "
            f"The version of {other} and CHANGELOG.md stay as they are",
            f"Erhöhe die Version des Pakets {package} von {old} auf {new}, überall, wo die Dateien sie nennen. "
            f"Die Version von {other} und CHANGELOG.md bleiben, wie sie sind",
            f"Fais passer la version du paquet {package} de {old} à {new}, partout où les fichiers la mentionnent. "
            f"La version de {other} et CHANGELOG.md restent tels quels",
        ),
        files={**start, "CHANGELOG.md": history},
        solution=solution,
        wrong=(
            {**solution, "pyproject.toml": project(new, new), "README.md": readme(new, new)},
            {"pyproject.toml": project(new), f"{package}/__init__.py": code(new)},
            {**solution, "README.md": readme(new).replace(f"=={new}", f"=={old}")},
            {**solution, "CHANGELOG.md": history.replace(old, new)},
        ),
    )


def stamp(millis: int) -> str:
    """A time as subtitles have it."""
    seconds, millis = divmod(millis, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02},{millis:03}"


def shift_subtitles(draw: Draw) -> Task:
    """Shift the times of subtitles over the end of a minute; a time in a text stays."""
    tenths = draw.one([number for number in range(12, 48) if number % 10])
    later = draw.one((True, False))
    shift = tenths * (100 if later else -100)
    base = draw.one((0, 4, 59)) * 60000
    starts = [base + draw.integer(*bounds) * 10 for bounds in ((1500, 2500), (3500, 4500), (5750, 5870), (6015, 6110))]
    ends = [start + draw.integer(110, 140) * 10 for start in starts]
    people, town = draw.some(PEOPLE, 2), draw.one(TOWNS)
    texts = (
        f"Where is {people[0]}?", f"The train to {town} leaves at 00:{draw.integer(10, 59)}:00.",
        f"{people[1]} has the {draw.one(GOODS)}.", f"Only {draw.integer(2, 9)} of us are left.",
    )  # fmt: skip

    def film(first: int, second: int) -> str:
        return "\n".join(
            f"{number}\n{stamp(start + first)} --> {stamp(end + second)}\n{text}\n"
            for number, (start, end, text) in enumerate(zip(starts, ends, texts, strict=True), 1)
        )

    by, comma = f"{tenths / 10}", f"{tenths / 10}".replace(".", ",")
    right = film(shift, shift)
    return draw.task(
        draw.say(
            f"The subtitles in film.srt come {by} seconds too {'early' if later else 'late'}. Change all times in the "
            f"file so that each subtitle begins and ends {by} seconds {'later' if later else 'earlier'}",
            f"Die Untertitel in film.srt kommen {comma} Sekunden zu {'früh' if later else 'spät'}. Ändere alle Zeiten "
            f"in der Datei so, dass jeder Untertitel {comma} Sekunden {'später' if later else 'früher'} "
            "beginnt und endet",
            f"Les sous-titres de film.srt arrivent {comma} secondes trop {'tôt' if later else 'tard'}. Modifie tous "
            f"les temps du fichier pour que chaque sous-titre commence et finisse {comma} secondes plus "
            f"{'tard' if later else 'tôt'}",
        ),
        files={"film.srt": film(0, 0), "notes.txt": f"film.srt: {len(texts)} subtitles, by {people[0]}\n"},
        solution={"film.srt": right},
        wrong=(
            {"film.srt": film(-shift, -shift)},
            {"film.srt": film(shift, 0)},
            {"film.srt": film(shift + (1000 if later else -1000), shift)},
            {"film.srt": right.replace("at 00:", "at 01:")},
            {"shifted.srt": right},
        ),
    )


def mask_hosts(draw: Draw) -> Task:
    """Put names for addresses in a log; one address begins like another one."""
    a, b, c = draw.integer(10, 99), draw.integer(10, 250), draw.integer(10, 250)
    digit, ten, far = draw.integer(1, 9), draw.integer(0, 9), draw.integer(100, 250)
    short, long, other = f"{a}.{b}.{c}.{digit}", f"{a}.{b}.{c}.{digit}{ten}", f"{a}.{c}.{b}.{far}"
    order = [short, *draw.some((long, other), 2)]
    hosts = [*order[:2], order[0], order[2], *(draw.one(order) for _ in range(draw.integer(2, 4)))]
    pages = [draw.one(WORDS) for _ in hosts]
    minutes = sorted(draw.integers(len(hosts), 10, 59))
    release = f"{draw.integer(1, 9)}.{draw.integer(0, 9)}.{draw.integer(0, 9)}"

    def log(*names: str) -> str:
        named = dict(zip(order, names, strict=True))
        rows = zip(minutes, hosts, pages, strict=True)
        return listing([f"# server {release}", *(f"10:{m}:04 {named[h]} GET /{p} from {named[h]}" for m, h, p in rows)])

    start = log(*order)
    right = log("host1", "host2", "host3")
    naive = start
    for number, host in enumerate(order, 1):
        naive = naive.replace(host, f"host{number}")
    return draw.task(
        draw.say(
            "Make access.log anonymous: replace each IP address by a name, host1, host2 and so on, numbered in the "
            "order in which the addresses first appear. The same address has the same name everywhere. "
            "Change nothing else in the folder",
            "Anonymisiere access.log: Ersetze jede IP-Adresse durch einen Namen, host1, host2 und so weiter, "
            "nummeriert in der Reihenfolge, in der die Adressen zuerst vorkommen. Dieselbe Adresse bekommt überall "
            "denselben Namen. Ändere sonst nichts im Ordner",
            "Anonymise access.log : remplace chaque adresse IP par un nom, host1, host2 et ainsi de suite, numéroté "
            "selon l'ordre de première apparition des adresses. Une même adresse a partout le même nom. "
            "Ne change rien d'autre dans le dossier",
        ),
        files={"access.log": start, "allow.conf": f"# who may come in\nallow {short}\nallow {other}\n"},
        solution={"access.log": right},
        wrong=(
            {"access.log": naive},
            {"access.log": log("host2", "host1", "host3")},
            {"access.log": log("host1", "host1", "host1")},
            {"access.log": right, "allow.conf": "# who may come in\nallow host1\nallow host2\n"},
            {"access.log": right.replace(" from host3", f" from {order[2]}")},
        ),
    )


def same_numbers(text: str) -> Check:
    """The same lines, where 1.5, 1,50 and 1.500 are the same number."""

    def plain(lines: list[str]) -> list[str]:
        number = re.compile(r"\d+(?:[.,]\d+)?")
        return [number.sub(lambda found: str(float(found[0].replace(",", "."))), line) for line in lines]

    return lambda path: plain(lines_of(read(path))) == plain(lines_of(text))


PANTRY = (
    "g lentils", "g flour", "g carrots", "g mushrooms", "ml milk", "ml stock", "g cheese", "g potatoes", "ml cream",
)  # fmt: skip


def scale_recipe(draw: Draw) -> Task:
    """Scale a recipe for more or fewer people: the amounts, but neither temperature nor times."""
    dish = f"{draw.one(TOWNS)} {draw.one(('stew', 'bake', 'gratin', 'pie'))}"
    before, after = draw.one(((4, 6), (4, 10), (2, 3), (2, 5), (4, 2), (6, 9)))
    things = draw.some(PANTRY, draw.integer(3, 4))
    amounts = [10 * number for number in draw.integers(len(things), 6, 40)]
    spoons, eggs = draw.one((1, 3, 5)), draw.one((4, 8))
    heat, pan, minutes = draw.integer(15, 23) * 10, draw.integer(22, 30), draw.integer(20, 55)

    def number(amount: float) -> str:
        return f"{amount * after / before:g}"

    def recipe(head: str, ingredients: list[str], times: int = minutes) -> str:
        rows = [f"- {a} {thing}" for a, thing in zip(ingredients, [*things, "tsp paprika", "eggs"], strict=True)]
        steps = [f"1. Heat the oven to {heat} degrees.", f"2. Mix all of it in a pan of {pan} cm."]
        return listing([f"# {dish}", "", f"For {head} people", "", *rows, "", *steps, f"3. Bake for {times} minutes."])

    old = [str(amount) for amount in (*amounts, spoons, eggs)]
    new = [number(amount) for amount in (*amounts, spoons, eggs)]
    right = recipe(str(after), new)
    return draw.task(
        draw.say(
            f"The recipe in recipe.md is for {before} people. Change the file so that it is for {after}: convert the "
            "amounts of all ingredients (in the same units, as decimal numbers such as 1.5 where needed). "
            "Leave the steps as they are",
            f"Das Rezept in recipe.md ist für {before} Personen. Ändere die Datei so, dass es für {after} ist: Rechne "
            "die Mengen aller Zutaten um (in denselben Einheiten, wenn nötig als Dezimalzahl wie 1.5). "
            "Lass die Zubereitungsschritte, wie sie sind",
            f"La recette de recipe.md est prévue pour {before} personnes. Modifie le fichier pour qu'elle soit pour "
            f"{after} : convertis les quantités de tous les ingrédients (dans les mêmes unités, en nombres décimaux si "
            "besoin, comme 1.5). Laisse les étapes telles quelles",
        ),
        files={
            "recipe.md": recipe(str(before), old),
            "shopping.txt": listing([f"{thing.split()[1]}?" for thing in things]),
        },
        solution={"recipe.md": right},
        checks={"recipe.md": same_numbers(right)},
        wrong=(
            {"recipe.md": recipe(str(before), new)},
            {"recipe.md": recipe(str(after), old)},
            {"recipe.md": recipe(str(after), [*new[:-2], *old[-2:]])},
            {"recipe.md": recipe(str(after), new, round(minutes * after / before))},
            {"recipe.md": recipe(str(after), [number(amounts[0] + 10), *new[1:]])},
        ),
    )


def fill_cards(draw: Draw) -> Task:
    """Fill a template for some rows of a table, each into a file of its own."""
    names, towns, numbers = draw.some(PEOPLE, 5), draw.some(TOWNS, 5), draw.integers(5, 100, 999)
    coming = [True, True, False, draw.one((True, False)), draw.one((True, False))]
    draw.rng.shuffle(coming)
    rows = [
        (number, name, town, draw.integer(1, 9), "yes" if comes else "no")
        for number, name, town, comes in zip(numbers, names, towns, coming, strict=True)
    ]
    template = (
        f"To {{name}}, {{town}}\n\nDear {{name}},\n\nwe look forward to the {draw.one(GOODS)} fair on "
        f"{draw.integer(2, 28)} May.\nYour seat is at table {{table}}.\n"
    )
    cards = {
        f"cards/{number}.txt": template.format(name=name, town=town, table=seat) for number, name, town, seat, _ in rows
    }
    right = {name: text for (name, text), comes in zip(cards.items(), coming, strict=True) if comes}
    first, second, *_ = right
    return draw.task(
        draw.say(
            "Write a card for each guest in guests.csv who is coming (yes in the column coming): put the columns of "
            "the guest's row in place of the {...} in template.txt, and save it as cards/ID.txt, where ID is the "
            "guest's id. The others get no card",
            "Schreibe für jeden Gast aus guests.csv, der kommt (yes in der Spalte coming), eine Karte: Setze für die "
            "{...} in template.txt die Spalten seiner Zeile ein und speichere sie als cards/ID.txt, wobei ID die id "
            "des Gastes ist. Die anderen bekommen keine Karte",
            "Écris une carte pour chaque invité de guests.csv qui vient (yes dans la colonne coming) : remplace les "
            "{...} de template.txt par les colonnes de sa ligne et enregistre-la sous cards/ID.txt, où ID est l'id de "
            "l'invité. Les autres ne reçoivent pas de carte",
        ),
        files={"guests.csv": sheet("id,name,town,table,coming", rows), "template.txt": template},
        solution=right,
        forbidden=tuple(name for name in cards if name not in right),
        wrong=(
            cards,
            {first: right[first]},
            {**right, first: right[second]},
            {**right, second: right[second].replace("table ", "table 1")},
            {**right, first: right[first].replace("Dear", "Dear {name}")},
        ),
    )


MONTHS = (
    ("January", "Januar", "janvier"), ("February", "Februar", "février"), ("March", "März", "mars"),
    ("April", "April", "avril"), ("May", "Mai", "mai"), ("June", "Juni", "juin"), ("July", "Juli", "juillet"),
    ("August", "August", "août"), ("September", "September", "septembre"), ("October", "Oktober", "octobre"),
    ("November", "November", "novembre"), ("December", "Dezember", "décembre"),
)  # fmt: skip


def list_month(draw: Draw) -> Task:
    """List the events of a month from a calendar by date, without those that were cancelled."""
    year, month = draw.integer(2023, 2029), draw.integer(1, 11)
    days = sorted(draw.integers(4, 3, 28))
    people, towns = draw.some(PEOPLE, 3), draw.some(TOWNS, 3)
    titles = [f"Meet {people[0]}", f"Trip to {towns[0]}", f"Call {people[1]}", f"Talk in {towns[1]}"]
    draw.rng.shuffle(titles)
    off = draw.integer(0, 3)
    events = [
        (f"{year}{month:02}{day:02}T{draw.integer(8, 19):02}{draw.one((0, 15, 30, 45)):02}00", title, place == off)
        for place, (day, title) in enumerate(zip(days, titles, strict=True))
    ]
    outside = [
        (f"{year}{month + 1:02}{days[0]:02}T093000", f"Visit {people[2]}", False),
        (f"{year + 1}{month:02}{days[1]:02}T110000", f"Lunch in {towns[2]}", False),
    ]
    mixed = [*events, *outside]
    while sorted(kept := [event for event in mixed if event in events and not event[2]]) == kept:
        draw.rng.shuffle(mixed)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0"]
    for when, title, cancelled in mixed:
        lines += ["BEGIN:VEVENT", f"DTSTART:{when}", f"SUMMARY:{title}"]
        lines += [*["STATUS:CANCELLED"][: int(cancelled)], "END:VEVENT"]

    def agenda(rows: list[tuple[str, str, bool]]) -> list[str]:
        return [f"{w[:4]}-{w[4:6]}-{w[6:8]} {w[9:11]}:{w[11:13]} {title}" for w, title, _ in rows]

    right = agenda([event for event in events if not event[2]])
    english, german, french = MONTHS[month - 1]
    de = "d'" if french[0] in "ao" else "de "
    return draw.task(
        draw.say(
            f"List the events of {english} {year} in calendar.ics in agenda.txt, earliest first and without cancelled "
            "ones: a line for each, such as '2022-01-31 14:05 Title', and nothing else",
            f"Liste die Termine vom {german} {year} aus calendar.ics in agenda.txt auf, den frühesten zuerst und ohne "
            "abgesagte: je eine Zeile wie '2022-01-31 14:05 Titel' und sonst nichts",
            f"Dresse dans agenda.txt la liste des événements {de}{french} {year} de calendar.ics, du plus tôt au plus "
            "tard et sans ceux qui sont annulés : une ligne pour chacun, comme '2022-01-31 14:05 Titre', "
            "et rien d'autre",
        ),
        files={"calendar.ics": listing([*lines, "END:VCALENDAR"])},
        solution={"agenda.txt": listing(right)},
        checks={"agenda.txt": same_lines(*right)},
        wrong=(
            {"agenda.txt": listing(agenda(events))},
            {"agenda.txt": listing(agenda(kept))},
            {"agenda.txt": listing(agenda(sorted(event for event in mixed if not event[2])))},
            {"agenda.txt": listing(right[:-1])},
            {"agenda.txt": listing([line[:10] + line[16:] for line in right])},
        ),
    )


def split_book(draw: Draw) -> Task:
    """Split a text at its headings of the first level; those of the second level stay within."""
    count = draw.integer(3, 4)
    titles, people, towns = draw.some(WORDS, 2 * count), draw.some(PEOPLE, count), draw.some(TOWNS, count)
    chapters = []
    for number, (person, town) in enumerate(zip(people, towns, strict=True)):
        chapter = [f"# The {titles[number]}", "", f"{person} went to {town}, #{draw.integer(1, 9)} of many.", ""]
        if number in (1, draw.integer(0, count)):
            chapter += [f"## Of the {titles[count + number]}", "", f"It rained in {town} for a week.", ""]
        chapters.append(chapter)
    parts = {f"chapter-{number}.md": listing(chapter[:-1]) for number, chapter in enumerate(chapters, 1)}
    finer = re.split(r"(?m)^(?=#+ )", "".join(listing(chapter) for chapter in chapters))[1:]
    without = {name: text.partition("\n")[2].lstrip() for name, text in parts.items()}
    return draw.task(
        draw.say(
            "Split book.md into its chapters, each of which begins at a heading with a single #: write the first one, "
            "with its heading, to chapter-1.md, the second one to chapter-2.md and so on. Then delete book.md",
            "Teile book.md in seine Kapitel auf, die jeweils an einer Überschrift mit einem einzelnen # beginnen: "
            "Schreibe das erste samt Überschrift in chapter-1.md, das zweite in chapter-2.md und so weiter. "
            "Lösche dann book.md",
            "Découpe book.md en chapitres, qui commencent chacun à un titre avec un seul # : écris le premier, avec "
            "son titre, dans chapter-1.md, le deuxième dans chapter-2.md et ainsi de suite. Supprime ensuite book.md",
        ),
        files={"book.md": "".join(listing(chapter) for chapter in chapters), "notes.md": f"# Notes\n\n{people[0]}?\n"},
        solution={"book.md": None, **parts},
        checks={name: same_lines(*filter(None, text.splitlines())) for name, text in parts.items()},
        forbidden=(f"chapter-{count + 1}.md",),
        wrong=(
            parts,
            {"book.md": None, **without},
            {"book.md": None, **{f"chapter-{number}.md": text for number, text in enumerate(finer, 1)}},
            {"book.md": None, **dict(list(parts.items())[:-1])},
            {"book.md": None, "notes.md": None, **parts},
        ),
    )


def compare_prices(draw: Draw) -> Task:
    """Compare two tables: what was added, what removed, what changed."""
    goods = draw.some(GOODS, 8)
    gone, fresh = goods[:2], goods[6 : draw.integer(7, 8)]
    costs = [number / 2 for number in draw.integers(6, 11, 99)]
    old = dict(zip(goods[:6], costs, strict=True))
    moved = {item: old[item] + draw.one((-2, -0.5, 0.5, 3)) for item in goods[2 : draw.integer(4, 5)]}
    new = {item: cost for item, cost in {**old, **moved}.items() if item not in gone}
    new |= {item: draw.integer(5, 60) for item in fresh}
    rows = [list(new.items()), list(old.items())]
    for each in rows:
        draw.rng.shuffle(each)

    def result(added: list[str], removed: list[str], changed: Mapping[str, float]) -> str:
        return json.dumps({"added": added, "removed": removed, "changed": changed}, indent=2) + "\n"

    def check(path: Path) -> bool:
        data: dict[str, Any] = json.loads(read(path))
        names = [sorted(data[key]) == sorted(items) for key, items in (("added", fresh), ("removed", gone))]
        return set(data) == {"added", "removed", "changed"} and all(names) and leaves(data["changed"]) == leaves(moved)

    return draw.task(
        draw.say(
            "Compare the price lists old.csv and new.csv. Write changes.json, an object with three entries: added and "
            "removed, each a list of the items that are only in new.csv or only in old.csv, and changed, an object "
            "with the new price of each item whose price is another one",
            "Vergleiche die Preislisten old.csv und new.csv. Schreibe changes.json, ein Objekt mit drei Einträgen: "
            "added und removed, je eine Liste der Artikel, die nur in new.csv beziehungsweise nur in old.csv stehen, "
            "und changed, ein Objekt mit dem neuen Preis jedes Artikels, dessen Preis sich geändert hat",
            "Compare les listes de prix old.csv et new.csv. Écris changes.json, un objet à trois entrées : added et "
            "removed, chacune une liste des articles qui ne sont que dans new.csv ou que dans old.csv, et changed, un "
            "objet avec le nouveau prix de chaque article dont le prix a changé",
        ),
        files={"new.csv": sheet("item,price", rows[0]), "old.csv": sheet("item,price", rows[1])},
        solution={"changes.json": result(fresh, gone, moved)},
        checks={"changes.json": check},
        wrong=(
            {"changes.json": result(gone, fresh, moved)},
            {"changes.json": result(fresh, gone, {item: old[item] for item in moved})},
            {"changes.json": result(fresh, gone, dict(list(moved.items())[1:]))},
            {"changes.json": result(fresh, gone, {item: new[item] for item in goods[2:6]})},
            {"changes.json": result(fresh, gone[:1], moved)},
        ),
    )


def fills(schema: str, rows: list[tuple[Any, ...]]) -> Check:
    """SQL that is run after the schema leaves these rows in the table `member`, by id."""

    def allow(action: int, *_: str | None) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK

    def check(path: Path) -> bool:
        connection = sqlite3.connect(":memory:")
        try:
            connection.set_authorizer(allow)
            connection.executescript(schema)
            connection.executescript(read(path))
            return connection.execute("SELECT * FROM member ORDER BY id").fetchall() == sorted(rows)
        except sqlite3.Error:
            return False
        finally:
            connection.close()

    return check


def seed_table(draw: Draw) -> Task:
    """Write SQL that fills a table: an apostrophe, an empty cell, and yes or no as a number."""
    names = [draw.one(("O'Brien", "D'Arcy", "O'Neill", "L'Hermite")), *draw.some(PEOPLE, 3)]
    draw.rng.shuffle(names)
    numbers, empty = draw.integers(4, 10, 99), draw.integer(0, 3)
    towns = ["" if place == empty else town for place, town in enumerate(draw.some(TOWNS, 4))]
    fees = [number / 2 for number in draw.integers(4, 11, 79)]
    paid = draw.some(("yes", "no", "yes", "no"), 4)
    rows = list(zip(numbers, names, towns, fees, paid, strict=True))
    schema = (
        "CREATE TABLE member (\n  id INTEGER PRIMARY KEY,\n  name TEXT NOT NULL,\n  town TEXT,\n"
        "  fee REAL NOT NULL,\n  paid INTEGER NOT NULL CHECK (paid IN (0, 1))\n);\n"
    )

    def sql(null: str = "NULL", quote: str = "''", yes: int = 1, skip: int | None = None) -> str:
        lines = []
        for place, (number, name, town, fee, has_paid) in enumerate(rows):
            quoted, where = name.replace("'", quote), f"'{town}'" if town else null
            values = f"{number}, '{quoted}', {where}, {fee}, {yes if has_paid == 'yes' else 1 - yes}"
            lines += [f"INSERT INTO member (id, name, town, fee, paid) VALUES ({values});"][: int(place != skip)]
        return listing(lines)

    stored = [(n, name, town or None, fee, int(has_paid == "yes")) for n, name, town, fee, has_paid in rows]
    return draw.task(
        draw.say(
            "Write seed.sql with INSERT statements (for SQLite) that put all rows of members.csv into the table of "
            "schema.sql. An empty cell becomes NULL, yes becomes 1 and no becomes 0. seed.sql is run after schema.sql",
            "Schreibe seed.sql mit INSERT-Anweisungen (für SQLite), die alle Zeilen von members.csv in die Tabelle aus "
            "schema.sql eintragen. Eine leere Zelle wird zu NULL, yes zu 1 und no zu 0. seed.sql wird nach schema.sql "
            "ausgeführt",
            "Écris seed.sql avec des instructions INSERT (pour SQLite) qui mettent toutes les lignes de members.csv "
            "dans la table de schema.sql. Une cellule vide devient NULL, yes devient 1 et no devient 0. seed.sql est "
            "exécuté après schema.sql",
        ),
        files={"members.csv": sheet("id,name,town,fee,paid", rows), "schema.sql": schema},
        solution={"seed.sql": sql()},
        checks={"seed.sql": fills(schema, stored)},
        wrong=(
            {"seed.sql": sql(null="''")},
            {"seed.sql": sql(quote="'")},
            {"seed.sql": sql(yes=0)},
            {"seed.sql": sql(skip=draw.integer(0, 3))},
            {"seed.sql": sql().replace("O''", "O").replace("D''", "D").replace("L''", "L")},
            {"seed.sql": schema + sql()},
        ),
    )


class Page(HTMLParser):
    """What a page consists of: tags with their attributes in any order, texts, comments."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: list[tuple[Any, ...]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.parts.append((tag, sorted((name, entry or "") for name, entry in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.parts.append(("end", tag))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_data(self, data: str) -> None:
        self.parts += [("text", " ".join(data.split()))] if data.strip() else []

    def handle_comment(self, data: str) -> None:
        self.parts.append(("comment", data.strip()))

    def handle_decl(self, decl: str) -> None:
        self.parts.append(("declaration", decl.lower()))


def describe_images(draw: Draw) -> Task:
    """Give the images of a page that have no alternative text one from their file name."""
    colours = draw.some(("red", "blue", "green", "white", "black", "old", "new"), 4)
    goods, people, town = draw.some(GOODS, 4), draw.some(PEOPLE, 2), draw.one(TOWNS)
    ending, size = draw.one(("jpg", "png", "webp")), draw.integer(100, 400)
    paths = [f"img/{c}-{item}.{ending}" for c, item in zip(colours, goods, strict=True)]
    paths[1] = paths[1].replace("-", f"-{draw.one(('big', 'small', 'tiny'))}-")
    texts = [path[4 : path.index(".")].replace("-", " ") for path in paths]

    def page(*alts: str | None, mine: str = f"The {goods[3]} of {people[1]}") -> str:
        first, second, third = ("" if alt is None else f' alt="{alt}"' for alt in alts)
        return (
            f"<!DOCTYPE html>\n<html>\n<head><title>Market of {town}</title></head>\n<body>\n"
            f"<h1>Market of {town}</h1>\n<!-- images by {people[0]} -->\n"
            f'<p><img src="{paths[0]}" width="{size}"{first}></p>\n'
            f'<p><img src="{paths[3]}" alt="{mine}"> and <a href="{paths[0]}">more</a></p>\n'
            f'<p><img class="wide" src="{paths[1]}"{second}></p>\n'
            f'<p>Last comes <img src="{paths[2]}"{third}>, for {size} cents.</p>\n</body>\n</html>\n'
        )

    right = page(*texts[:3])
    parts = Page(right).parts
    return draw.task(
        draw.say(
            "Give each img in page.html that has no alt attribute one: the name of the image file without folder and "
            "ending, with spaces for hyphens (img/my-dog.gif: my dog). Leave everything else in the page as it is",
            "Gib in page.html jedem img, das kein alt-Attribut hat, eines: den Namen der Bilddatei ohne Ordner und "
            "Endung, mit Leerzeichen statt Bindestrichen (img/my-dog.gif: my dog). Lass alles andere in der Seite, "
            "wie es ist",
            "Dans page.html, donne à chaque img qui n'a pas d'attribut alt un tel attribut : le nom du fichier de "
            "l'image sans dossier ni extension, avec des espaces à la place des traits d'union (img/my-dog.gif : "
            "my dog). Laisse tout le reste de la page tel quel",
        ),
        files={"page.html": page(None, None, None), "style.css": f".wide {{ width: {size + 80}px; }}\n"},
        solution={"page.html": right},
        checks={"page.html": lambda path: Page(read(path)).parts == parts},
        wrong=(
            {"page.html": page(*texts[:2], None)},
            {"page.html": page(*texts[:3], mine=texts[3])},
            {"page.html": page(*(text.replace(" ", "-") for text in texts[:3]))},
            {"page.html": page(texts[0], texts[1].replace(" ", "-").replace("-", " ", 1), texts[2])},
            {"page.html": page(*(f"{text}.{ending}" for text in texts[:3]))},
            {"page.html": page(*texts[:3]).replace(' width="', ' height="')},
        ),
    )


ROMAN = (
    (1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"),
    (9, "IX"), (5, "V"), (4, "IV"), (1, "I"),
)  # fmt: skip
PROGRAMS = {
    "roman": f"""import sys

number = int(sys.argv[1])
result = ""
for size, letters in {ROMAN}:
    result += letters * (number // size)
    number %= size
print(result)
""",
    "pay": """import sys
from pathlib import Path

left = int(sys.argv[1])
for coin in sorted(map(int, Path("coins.txt").read_text().split()), reverse=True):
    while coin <= left:
        print(coin)
        left -= coin
""",
    "runs": """import sys
from itertools import groupby

print("".join(f"{letter}{len(list(group))}" for letter, group in groupby(sys.argv[1])))
""",
    "clock": """import sys

seconds = int(sys.argv[1])
print(f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}")
""",
}
PROGRAM_SAYS = {
    "roman": (
        "prints this number as a Roman numeral", "diese Zahl als römische Zahl ausgibt",
        "affiche ce nombre en chiffres romains",
    ),
    "pay": (
        "prints the coins that make up this amount, one per line, always taking the largest coin of coins.txt that "
        "still fits",
        "die Münzen ausgibt, die diesen Betrag ergeben, eine pro Zeile, wobei es immer die größte Münze aus coins.txt "
        "nimmt, die noch passt",
        "affiche les pièces qui composent ce montant, une par ligne, en prenant toujours la plus grande pièce de "
        "coins.txt qui convient encore",
    ),
    "runs": (
        "prints for each run of the same letter the letter and the length of the run, all in one line",
        "für jede Folge gleicher Buchstaben den Buchstaben und die Länge der Folge ausgibt, alles in einer Zeile",
        "affiche pour chaque suite de lettres identiques la lettre et la longueur de la suite, le tout sur une seule "
        "ligne",
    ),
    "clock": (
        "prints this number of seconds as hours:minutes:seconds, minutes and seconds always with two digits",
        "diese Anzahl Sekunden als Stunden:Minuten:Sekunden ausgibt, Minuten und Sekunden immer zweistellig",
        "affiche ce nombre de secondes sous la forme heures:minutes:secondes, les minutes et les secondes toujours à "
        "deux chiffres",
    ),
}  # fmt: skip
COUNT_ALL = "import sys\n\nword = sys.argv[1]\nprint(''.join(f'{c}{word.count(c)}' for c in dict.fromkeys(word)))\n"


def program_prints(kind: str, given: str, coins: Sequence[int]) -> str:
    """What a program has to print for an argument."""
    if kind == "runs":
        return "".join(f"{run[1]}{len(run[0])}" for run in re.finditer(r"(.)\1*", given))
    number = int(given)
    if kind == "clock":
        return f"{number // 3600}:{number // 60 % 60:02}:{number % 60:02}"
    parts = []
    for size, sign in ROMAN if kind == "roman" else [(coin, f"{coin}\n") for coin in sorted(coins, reverse=True)]:
        parts.append(sign * (number // size))
        number %= size
    return "".join(parts).strip()


def write_program(draw: Draw) -> Task:
    """Write a small program that takes an argument: it is run with others than those of the examples."""
    kind = draw.one(list(PROGRAMS))
    coins = [1, *map(int, (*draw.some(("3", "8", "25"), 2), *draw.some(("5", "10", "20", "50"), 2)))]
    draw.rng.shuffle(coins)
    code, says = PROGRAMS[kind], PROGRAM_SAYS[kind]
    if kind == "roman":
        given = [*map(str, draw.integers(3, 50, 3899)), "1994", "49", "8"]
        bad = code.replace("(9, 'IX'), ", "")
    elif kind == "pay":
        given, bad = [*map(str, draw.integers(5, 30, 199)), "1"], code.replace("while", "if")
    elif kind == "runs":
        drawn = ["".join(draw.one("abc") * draw.integer(1, 4) for _ in range(5)) for _ in range(4)]
        given, bad = [*dict.fromkeys([*drawn, "x", "abba", "z" * draw.integer(10, 14)])], COUNT_ALL
    else:
        given = [str(draw.integer(3700, 35000)), *map(str, draw.integers(2, 40000, 86000)), "59", "3605"]
        bad = code.replace(":02", "")
    prints = {text: program_prints(kind, text, coins) for text in given}
    shown = given[:2]
    script = f"{kind}.py"
    run = f"import runpy, sys\nsys.argv[0] = '{script}'\nrunpy.run_path('{script}', run_name='__main__')"
    examples = "\n".join(f"$ python {script} {text}\n{prints[text]}\n" for text in shown)
    return draw.task(
        draw.say(
            f"Write a program {script} that gets one argument and {says[0]}; examples.txt shows how",
            f"Schreibe ein Programm {script}, das ein Argument bekommt und {says[1]}; examples.txt zeigt, wie",
            f"Écris un programme {script} qui reçoit un argument et {says[2]} ; examples.txt montre comment",
        ),
        files={"examples.txt": examples, **({"coins.txt": listing(coins)} if kind == "pay" else {})},
        solution={script: code},
        checks={script: every(*(python(run, text + "\n", [argument]) for argument, text in prints.items()))},
        wrong=(
            {script: bad},
            {script: f"import sys\n\nprint({ {text: prints[text] for text in shown} }[sys.argv[1]])\n"},
            {script: code.replace("sys.argv[1]", f"{shown[0]!r}")},
            {script: code.replace("print(", "str(")},
            {script: code, "examples.txt": None},
        ),
    )


def follow_rules(draw: Draw) -> Task:
    """Fix a function until it does what a text says; there is no test, and the function beside it stays."""
    kind = draw.one(("ticket", "parking", "postage"))
    unit = draw.one(("euros", "crowns", "francs"))
    if kind == "ticket":
        free, young, old = draw.integer(3, 7), draw.integer(14, 19), draw.integer(60, 70)
        full = draw.integer(5, 15) * 4
        rules = [
            f"ticket(age) returns the price of a ticket in {unit}:", "",
            f"- younger than {free} years: free", f"- from {free} to {young} years (both included): {full // 2}",
            f"- {old} years or older: {full * 3 // 4}", f"- all others: {full}",
        ]  # fmt: skip
        argument, values = "age", [0, free - 1, free, free + 1, young - 1, young, young + 1, 40, old - 1, old, old + 1]

        def right(value: int) -> int:
            return 0 if value < free else full // 2 if value <= young else full * 3 // 4 if value >= old else full

        def body(first: bool, second: bool) -> str:
            return (
                f"    if age {'<' if first else '<='} {free}:\n        return 0\n"
                f"    if age <= {young}:\n        return {full // 2}\n"
                f"    if age {'>=' if second else '>'} {old}:\n        return {full * 3 // 4}\n    return {full}\n"
            )

    elif kind == "parking":
        free, price, hours = draw.integer(3, 9) * 5, draw.integer(2, 6), draw.integer(4, 6)
        most = price * hours - 1
        rules = [
            f"parking(minutes) returns what it costs to park, in {unit}:", "",
            f"- up to and including {free} minutes: nothing",
            f"- longer: {price} for each hour that has begun, from the first minute on (61 minutes: 2 hours)",
            f"- but never more than {most}",
        ]  # fmt: skip
        argument = "minutes"
        values = [0, free, free + 1, 59, 60, 61, 120, 121, 60 * hours - 60, 60 * hours - 59, 60 * hours, 1000]

        def right(value: int) -> int:
            return 0 if value <= free else min(most, price * -(-value // 60))

        def body(first: bool, second: bool) -> str:
            begun = "-(-minutes // 60)" if first else "(minutes // 60 + 1)"
            cost = f"{price} * {begun}"
            last = f"    return {f'min({most}, {cost})' if second else cost}\n"
            return f"    if minutes <= {free}:\n        return 0\n{last}"

    else:
        light, middle, heavy = draw.integer(2, 9) * 10, draw.integer(10, 30) * 10, draw.integer(4, 20) * 100
        first_price = draw.integer(1, 4)
        rules = [
            f"postage(grams) returns what it costs to send a letter, in {unit}:", "",
            f"- up to and including {light} g: {first_price}", f"- up to and including {middle} g: {first_price + 2}",
            f"- up to and including {heavy} g: {first_price + 5}",
            f"- heavier: {first_price + 5}, and 1 more for each gram above {heavy}",
        ]  # fmt: skip
        argument = "grams"
        values = [1, light, light + 1, middle - 1, middle, middle + 1, heavy, heavy + 1, heavy + 2, heavy + 70]

        def right(value: int) -> int:
            cost = first_price if value <= light else first_price + 2 if value <= middle else first_price + 5
            return cost + max(0, value - heavy)

        def body(first: bool, second: bool) -> str:
            return (
                f"    if grams <= {light}:\n        return {first_price}\n"
                f"    if grams {'<=' if first else '<'} {middle}:\n        return {first_price + 2}\n"
                f"    if grams <= {heavy}:\n        return {first_price + 5}\n"
                f"    return {first_price + 5}{f' + grams - {heavy}' if second else ''}\n"
            )

    def module(first: bool, second: bool) -> str:
        label = f'def label(amount):\n    return f"{{amount}} {unit}"\n'
        return f"def {kind}({argument}):\n{body(first, second)}\n\n{label}"

    fixed = module(True, True)
    tests = {number: right(number) for number in values}
    hidden = f"from {kind} import *\nassert all({kind}(n) == cost for n, cost in {tests}.items())"
    return draw.task(
        draw.say(
            f"The function {kind} in {kind}.py does not always return what rules.md says. Find its mistakes and "
            "correct them. The rules are right, and the function label stays as it is",
            f"Die Funktion {kind} in {kind}.py gibt nicht immer das zurück, was rules.md sagt. Finde ihre Fehler und "
            "behebe sie. Die Regeln stimmen, und die Funktion label bleibt, wie sie ist",
            f"La fonction {kind} de {kind}.py ne renvoie pas toujours ce que dit rules.md. Trouve ses erreurs et "
            "corrige-les. Les règles sont justes, et la fonction label reste telle quelle",
        ),
        files={f"{kind}.py": module(False, False), "rules.md": listing(rules)},
        solution={f"{kind}.py": fixed},
        checks={f"{kind}.py": python(f"{hidden}\nassert label(7) == '7 {unit}'")},
        wrong=(
            {f"{kind}.py": module(True, False)},
            {f"{kind}.py": module(False, True)},
            {f"{kind}.py": fixed.partition("\n\n\n")[0] + "\n"},
            {f"{kind}.py": fixed, "rules.md": listing(rules[:-1])},
        ),
    )


def drop_twins(draw: Draw) -> Task:
    """Delete files that hold the same as another one; a file that is nearly the same stays."""
    names = sorted(f"{word}.txt" for word in draw.some(WORDS, 5))
    town, person, (one, two) = draw.one(TOWNS), draw.one(PEOPLE), draw.integers(2, 10, 99)
    goods = draw.some(GOODS, 2)
    twin = f"Stock in {town}\n{goods[0]}s: {one}\n{goods[1]}s: {two}\nCounted by {person}\n"
    near = twin.replace(f": {two}", f": {two + 1}")
    other = f"Stock in {town}\n{goods[1]}s: {one}\n"
    more = draw.one(([other, other], [twin, other], [near, other]))
    start = dict(zip(names, draw.some([twin, twin, near, *more], 5), strict=True))
    first = {text: name for name, text in reversed(start.items())}
    twins = [name for name, text in start.items() if first[text] != name]
    kept = first[start[twins[0]]]
    singles = [name for name in names if name not in twins]
    return draw.task(
        draw.say(
            "Some of the text files here have exactly the same contents. Of those that are the same, keep the one "
            "whose name comes first in the alphabet and delete the others",
            "Einige der Textdateien hier haben genau denselben Inhalt. Behalte von gleichen Dateien jeweils die, deren "
            "Name im Alphabet zuerst kommt, und lösche die anderen",
            "Certains des fichiers texte ici ont exactement le même contenu. Parmi ceux qui sont identiques, garde "
            "celui dont le nom vient en premier dans l'alphabet et supprime les autres",
        ),
        files=start,
        solution=dict.fromkeys(twins),
        wrong=(
            dict.fromkeys([kept, *twins[1:]]),
            dict.fromkeys([*twins, kept]),
            dict.fromkeys([*twins, singles[-1]]),
            dict.fromkeys(twins[1:]),
            {**dict.fromkeys(twins), kept: start[kept] + "(once)\n"},
        ),
    )


def find_deputy(draw: Draw) -> Task:
    """Answer a question from four files: who is on duty, who stands in, who is away."""
    people = draw.some(PEOPLE, 5)
    year, month, day = draw.integer(2023, 2029), draw.integer(1, 12), draw.integer(8, 20)
    depth = draw.integer(1, 2)

    def date(number: int) -> str:
        return f"{year}-{month:02}-{number:02}"

    chain = dict(zip(people, [*people[1:], people[0]], strict=True))
    away = [(people[0], day - draw.integer(0, 3), day + draw.integer(0, 4)), (people[3], day - 1, day + 1)]
    if depth == 2:
        away.append((people[1], day - draw.integer(1, 4), day + draw.integer(0, 3)))
    else:
        away.append((people[1], day + 1, day + draw.integer(2, 5)))
    draw.rng.shuffle(away)
    duty = {day - 1: people[2], day: people[0], day + 1: people[4], day + 2: people[1]}
    deputies = dict(draw.rng.sample(list(chain.items()), len(chain)))
    answer = people[depth]
    rules = (
        "# Duty\n\nWho is on duty is in rota.csv. Whoever is away on that day is replaced by their deputy "
        "(deputies.json).\nIf the deputy is away as well, the deputy of the deputy steps in, and so on.\n"
        "The first and the last day in away.txt count as away.\n"
    )
    return draw.task(
        draw.say(
            f"Who is really on duty on {date(day)}? Follow the rules in rules.md and write just the name to answer.txt",
            f"Wer hat am {date(day)} tatsächlich Dienst? Folge den Regeln in rules.md und schreibe nur den Namen in "
            "answer.txt",
            f"Qui est réellement de service le {date(day)} ? Suis les règles de rules.md et écris seulement le nom "
            "dans answer.txt",
        ),
        files={
            "rota.csv": sheet("date,name", [(date(number), name) for number, name in duty.items()]),
            "deputies.json": json.dumps(deputies, indent=2, ensure_ascii=False) + "\n",
            "away.txt": listing([f"{name}: {date(begin)} to {date(end)}" for name, begin, end in away]),
            "rules.md": rules,
        },
        solution={"answer.txt": f"{answer}\n"},
        checks={"answer.txt": just(answer)},
        wrong=(
            {"answer.txt": f"{people[0]}\n"},
            {"answer.txt": f"{people[3 - depth]}\n"},
            {"answer.txt": f"{people[4]}\n"},
            {"answer.txt": f"{answer}\n", "away.txt": None},
        ),
    )


def no_restore(draw: Draw) -> Task:
    """A lost file of which there is only a checksum."""
    lost, *names = (f"{word}.txt" for word in draw.some(WORDS, 3))
    town, person = draw.one(TOWNS), draw.one(PEOPLE)
    texts = [f"Report on {item}s\n{draw.integer(100, 999)} sold in {town}.\n" for item in draw.some(GOODS, 2)]
    gone = f"{person} on {town}: {draw.rng.getrandbits(160):x}\n"
    everything = {**dict(zip(names, texts, strict=True)), lost: gone}
    rows = [
        (name, len(text.encode()), hashlib.sha256(text.encode()).hexdigest())
        for name, text in sorted(everything.items())
    ]
    return draw.task(
        draw.say(
            f"{lost} was deleted by mistake. Restore it as it was, so that it matches its entry in manifest.csv again",
            f"{lost} wurde aus Versehen gelöscht. Stelle die Datei so wieder her, wie sie war, sodass sie wieder zu "
            "ihrem Eintrag in manifest.csv passt",
            f"{lost} a été supprimé par erreur. Restaure-le tel qu'il était, pour qu'il corresponde de nouveau à son "
            "entrée dans manifest.csv",
        ),
        files={**dict(zip(names, texts, strict=True)), "manifest.csv": sheet("name,bytes,sha256", rows)},
        wrong=(
            {lost: ""},
            {lost: texts[0]},
            {lost: texts[0], "manifest.csv": sheet("name,bytes,sha256", rows[:2])},
            {},
        ),
        possible=False,
    )


def no_seats(draw: Draw) -> Task:
    """More guests than seats."""
    guests = draw.some(PEOPLE, draw.integer(9, 11))
    tables = draw.some(("window", "garden", "corner", "middle", "stage"), 3)
    missing, first, second = draw.integer(1, 2), draw.integer(2, 3), draw.integer(2, 3)
    seats = [first, second, len(guests) - missing - first - second]
    places = [table for table, count in zip(tables, seats, strict=True) for _ in range(count)]
    seated = list(zip(guests, places, strict=False))
    return draw.task(
        draw.say(
            "Write seating.csv with the columns guest and table: everyone in guests.txt has to have a place at one of "
            "the tables in tables.csv, and no table may get more guests than it has seats. Change neither of the lists",
            "Schreibe seating.csv mit den Spalten guest und table: Alle aus guests.txt müssen einen Platz an einem der "
            "Tische aus tables.csv haben, und kein Tisch darf mehr Gäste bekommen, als er Plätze hat. "
            "Ändere keine der beiden Listen",
            "Écris seating.csv avec les colonnes guest et table : chaque personne de guests.txt doit avoir une place à "
            "l'une des tables de tables.csv, et aucune table ne doit recevoir plus d'invités qu'elle n'a de places. "
            "Ne modifie aucune des deux listes",
        ),
        files={
            "guests.txt": listing(guests),
            "tables.csv": sheet("table,seats", list(zip(tables, seats, strict=True))),
        },
        wrong=(
            {"seating.csv": sheet("guest,table", seated)},
            {"seating.csv": sheet("guest,table", [*seated, *((name, tables[0]) for name in guests[len(places) :])])},
            {"guests.txt": listing(guests[: len(places)]), "seating.csv": sheet("guest,table", seated)},
            {},
        ),
        possible=False,
    )


FAMILIES = {
    family.__name__: family
    for family in (
        compare_prices, describe_images, drop_twins, fill_cards, find_deputy, follow_rules, list_month, mask_hosts,
        raise_version, scale_recipe, seed_table, shift_subtitles, split_book, write_program, no_restore, no_seats,
    )
}  # fmt: skip
