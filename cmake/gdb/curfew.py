# SPDX-License-Identifier: MIT
# Copyright (c) 2026 the curfew authors

"""What gdb shows of fences, singletons and lifespans, by reading memory alone: also in a core file.

    (gdb) source curfew.py
    (gdb) print requests
    $1 = traced_admission_fence "requests": closed, 1 inside = {
      [0] = server.cpp:41 (bool serve(int)), thread 0x7ffff7a006c0}

Counts are what the memory says at that moment: exact when the fence is closed, or when all threads are stopped outside
of entering and leaving. Knows the standard libraries of GCC and LLVM.
"""

import re

import gdb
import gdb.printing


def bases(value):
    for field in value.type.strip_typedefs().fields():
        if field.is_base_class:
            yield value[field]


def base_like(value, pattern):
    """The base class, at any depth, whose name matches."""
    for base in bases(value):
        if re.search(pattern, str(base.type.strip_typedefs().name)):
            return base
        found = base_like(base, pattern)
        if found is not None:
            return found
    return None


def atomic(value):
    """What is in a std::atomic."""
    for name in ("_M_i", "_M_p", "__a_value"):
        try:
            return value[name]
        except gdb.error:
            pass
    for field in value.type.strip_typedefs().fields():
        if not hasattr(field, "bitpos"):
            continue  # static
        if field.is_base_class or field.name in ("_M_base", "_M_b", "__a_"):
            found = atomic(value[field])
            if found is not None:
                return found
    return None


def signed(value, bits=64):
    number = int(value) & ((1 << bits) - 1)
    return number - (1 << bits) if number >> (bits - 1) else number


def pointee(value):
    """What a std::unique_ptr or std::shared_ptr points to, as a pointer: the first one in it, at any depth."""
    for field in value.type.strip_typedefs().fields():
        if not hasattr(field, "bitpos"):
            continue  # static
        code = field.type.strip_typedefs().code
        found = value[field] if code == gdb.TYPE_CODE_PTR else None
        if code == gdb.TYPE_CODE_STRUCT:
            found = pointee(value[field])
        if found is not None:
            return found
    return None


def text_of(value):
    """A std::string, without needing the printers of the standard library."""
    try:
        return value["_M_dataplus"]["_M_p"].string()
    except gdb.error:
        return value.format_string().strip('"')


def quoted(name):
    text = name.string()
    return '"' + text + '"' if text else "(no name)"


def striped_state(core):
    """State and count of a detail::striped_core. See the legend in that header."""
    bias = 1 << 62
    gate = int(atomic(core["cells_"]["gate"]))
    remaining = signed(atomic(core["remaining_"]))
    if gate == -3:
        return "drained", 0
    if gate == -2:  # the harvest may be missing as yet
        return "closed", remaining if 0 <= remaining < bias // 2 else None
    count = remaining - bias
    lanes = core["cells_"]["lanes"]
    low, high = lanes.type.strip_typedefs().range()
    for number in range(low, high + 1):
        count += signed(atomic(lanes[number]["shared"])) >> 1
        if gate > 0 or gate == -4:
            count += signed(atomic(lanes[number]["local"]))
    return ("closing" if gate == -4 else "open"), max(count, 0)


def compact_state(core):
    word = int(atomic(core["word_"]))
    count = word >> 2
    if not word & 1:
        return "open", count
    return ("closed" if count or word & 2 else "drained"), count


def core_state(core):
    kind = str(core.type.strip_typedefs().name)
    return compact_state(core) if "compact_core" in kind else striped_state(core)


class Fence:
    def __init__(self, value):
        self.value = value
        self.traced = base_like(value, r"detail::occupants<")

    def to_string(self):
        core = self.value["core_"]
        kind = str(core.type.strip_typedefs().name)
        name = "compact_admission_fence" if "compact_core" in kind else "admission_fence"
        if self.traced is not None:
            name = "traced_admission_fence"
        state, count = core_state(core)
        inside = "somebody" if count is None else str(count)
        return "%s %s: %s, %s inside" % (name, quoted(core["name_"]), state, inside)

    def children(self):
        if self.traced is None:
            return
        number = 0
        stripes = self.traced["stripes_"]["_M_elems"]
        low, high = stripes.type.strip_typedefs().range()
        for stripe in range(low, high + 1):
            block = stripes[stripe]["blocks"]
            while int(block) != 0:
                records = block["records"]["_M_elems"]
                first, last = records.type.strip_typedefs().range()
                for at in range(first, last + 1):
                    if records[at]["taken"]:
                        yield "[%d]" % number, self.occupant(records[at]["who"])
                        number += 1
                block = block["next"]

    @staticmethod
    def occupant(who):
        where = who["where"]
        try:
            place = where["_M_impl"]
            file, line, function = place["_M_file_name"], place["_M_line"], place["_M_function_name"]
        except gdb.error:
            file, line, function = where["file_"], where["line_"], where["function_"]
        thread = who["thread"]
        for name in ("_M_thread", "__id_"):
            try:
                thread = thread[name]
            except gdb.error:
                pass
        return "%s:%d (%s), thread 0x%x" % (file.string(), int(line), function.string(), int(thread))


class Pass:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        fence = self.value["fence_"]
        if int(fence) == 0:
            return "pass (empty)"
        state, _ = core_state(fence["core_"])
        return "pass of %s, which is %s" % (quoted(fence["core_"]["name_"]), state)


class Singleton:
    def __init__(self, value):
        self.value = value
        self.block = atomic(value["current_"])

    def to_string(self):
        kind = re.search(r"(guarded|scoped)_singleton", str(self.value.type.strip_typedefs().name)).group(0)
        text = "%s %s: " % (kind, quoted(self.value["name_"]))
        core = atomic(self.value["core_"])
        sealed = int(core) != 0 and bool(atomic(core["sealed_"]))
        if int(self.block) == 0:
            text += "sealed" if sealed else "no instance"
        else:
            _, handles = striped_state(self.block["fence"])
            text += "one instance, %s handles" % handles
        if int(core) != 0:
            text += ", generation %d" % int(atomic(core["generation_"]))
            stats = core["stats"]
            text += ", %d made, %d torn down" % (int(stats["made"]), int(stats["torn_down"]))
        return text

    def children(self):
        if int(self.block) != 0:
            yield "current", pointee(self.block["instance"]).dereference()


class Lifespan:
    def __init__(self, value):
        self.core = pointee(value["core_"])

    def to_string(self):
        if int(self.core) == 0:
            return "ordered_lifespan (given up)"
        state = str(atomic(self.core["state_"])).split("::")[-1]
        return 'ordered_lifespan "%s": %s, %d stages' % (
            text_of(self.core["options_"]["name"]),
            state,
            len(list(self.stages())),
        )

    def stages(self):
        try:
            stages = self.core["stages_"]["_M_impl"]
            at, end = stages["_M_start"], stages["_M_finish"]
        except gdb.error:
            at, end = self.core["stages_"]["__begin_"], self.core["stages_"]["__end_"]
        while at != end:
            yield pointee(at.dereference())
            at += 1

    def children(self):
        if int(self.core) == 0:
            return
        for stage in self.stages():
            notes = []
            try:
                hooks = stage["hooks"]["_M_elems"]
                for number, phase in enumerate(("start", "close", "drain", "stop", "cleanup")):
                    if int(hooks[number]["_M_manager"]) != 0:
                        notes.append(phase)
            except gdb.error:
                pass  # another library's std::function
            notes += [note for note in ("on_controller", "parallel") if stage[note]]
            yield text_of(stage["name"]), ", ".join(notes) or "no hooks"


def register(where):
    printers = gdb.printing.RegexpCollectionPrettyPrinter("curfew")
    inside = r"^(const )?curfew::(abi\w*::)?"
    printers.add_printer("pass", inside + r"basic_fence<.*>::pass$", Pass)
    printers.add_printer("fence", inside + r"basic_fence<.*>$", Fence)
    printers.add_printer("singleton", inside + r"(guarded|scoped)_singleton<.*>$", Singleton)
    printers.add_printer("lifespan", inside + r"basic_ordered_lifespan<.*[^:]>$", Lifespan)
    gdb.printing.register_pretty_printer(where, printers, replace=True)


register(gdb.current_objfile())
