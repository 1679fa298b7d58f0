"""The results of a proof: one JSON file, which is kept between jobs, and the tables it makes for the pages."""

import json
import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from figures import Table, has_markers, markers, put_between_markers, replace_file, report_of

PLOTS = ("handoff.svg", "sharers.svg")


class Results:
    """What has been done with this revision and seed. Each change is written at once."""

    def __init__(self, path, facts):
        self.path, self.done = path, {"facts": facts, "jobs": {}}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                self.done = json.load(file)

    @property
    def facts(self):
        return self.done["facts"]

    @property
    def jobs(self):
        return self.done["jobs"]

    def add(self, name, **result):
        self.jobs[name] = result
        replace_file(self.path, json.dumps(self.done, indent=1, ensure_ascii=False) + "\n")

    def lacks(self, name):
        """Whether this job has not run: what it lacked before may exist now, and vice versa."""
        return self.jobs.get(name, {"status": "not run"})["status"] == "not run"

    def parts(self):
        return {job.split("/")[0] for job in self.jobs}

    def failed(self):
        return [name for name, result in self.jobs.items() if result["status"] == "failed"]


def block_of(name, jobs):
    """The text of a part: its tables, merged if their headers are equal, and what did not run or failed, and why."""
    tables, heads, after, without = {}, [], [], {}
    for job, result in jobs.items():
        if job.split("/")[0] != name:
            continue
        if result["status"] != "passed":
            without.setdefault("%s: %s" % (result["status"], result["why"]), []).append("`%s`" % job)
        figures = result.get("figures") or {"head": "", "tables": [], "after": []}
        heads += [figures["head"]] if figures["head"] else []
        after += figures["after"]
        for table in figures["tables"]:
            key = table["title"], tuple(table["header"])
            tables.setdefault(key, []).extend(table["rows"])
    after += ["%s: %s." % (", ".join(names), why) for why, names in without.items()]
    rows = [Table(title, list(header), rows) for (title, header), rows in tables.items() if rows]
    return report_of("\n".join(heads), rows, True, ["- " + line for line in after])


def head_of(facts):
    return ("Revision `%(revision)s`, seed `%(seed)s`, a plan of %(minutes)g minutes, %(begun)s.\n"
            "Machine: %(machine)s. Versions: %(versions)s.") % facts


def pages_of(parts):
    pages = {}
    for part in parts:
        pages.setdefault(part.page, []).append(part.name)
    return pages


def lacking(folder, parts):
    """The markers that a page should have but lacks."""
    for page, names in pages_of(parts).items():
        with open(os.path.join(folder, page), encoding="utf-8") as file:
            text = file.read()
        for name in ["proof", *names]:
            if not has_markers(text, name):
                yield "%s: no line %s, or no %s" % (page, *markers(name))


def write_pages(results, folder, parts):
    """Each page whose parts are all in these results."""
    for page, blocks in pages_of(parts).items():
        if not results.parts().issuperset(blocks):
            continue
        path = os.path.join(folder, page)
        with open(path, encoding="utf-8") as file:
            text = put_between_markers(file.read(), "proof", head_of(results.facts))
        for name in blocks:
            text = put_between_markers(text, name, block_of(name, results.jobs))
        replace_file(path, text)


def copy_plots(source, folder):
    for name in PLOTS:
        if os.path.exists(os.path.join(source, name)):
            shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))


def without_figures(text, names):
    for name in names:
        if has_markers(text, name):
            text = put_between_markers(text, name, "")
    return text
