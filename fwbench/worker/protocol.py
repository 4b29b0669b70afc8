"""The messages between pytest's side and a lane's server, and the version that both sides must speak.

The server imports the frameworks once, touches no device, and forks a fresh process for every job. A job is either
measured alone, to its end:

    client                      server                        worker (one a job)
      | <-- {"ready", "protocol"} |
      | -- {"workload", ...} -->  | -- fork -------------------> |
      | <-- {"started": pid} ---------------------------------- |
      | <-- {"stage": name} ... ------------------------------- |
      | <-- {"measurement": ...} ------------------------------ | exits
      | <-- {"exited": status} -- | <-- waitpid --------------- |

If the job holds `stays` and nothing has failed, the worker says `stays` beside the measurement and waits for another
message: a job for turns, which it takes with the program that it has measured, or the end. Where a job holds `turns`,
the worker builds its program and takes turns on request:

      | -- {"workload", "turns", ...} -> | -- fork ----------> |
      | <-- {"stage": name} ... ------------------------------- |
      | <-- {"built": {"settings", "versions", "compiling"}} ------ |  `compiling`: seconds, or null
      | -- {"place": padding} ---------------------------------> |  the program in fresh memory, warm again
      | <-- {"placed": latency} -------------------------------- |
      | -- {"rounds": n} --------------------------------------> |  a turn
      | <-- {"rounds": [...], "cpu_time", "held"} -------------- |
      | -- {"alone": n, "together": m} ------------------------> |  a turn of calls one by one, and back to back
      | <-- {"latency", "call", "cpu", "others", "held"} ------- |
      | -- {"modules"} ----------------------------------------> |
      | <-- {"modules"} ---------------------------------------- |  all of the user's modules are this side's
      | -- {"finish": {"program", "spans": n, "outputs", ...} > |  `spans`: of n calls; `energy`: whether to measure it
      | <-- {"finished": memory, "sources", "edited", ...} ---- | exits; `energy`: joules of a sample, or null
      | <-- {"exited": status} -- |

If such a job holds `starting`, `built` also has `start`, the seconds from the start of compiling to the end of the
first call, and {"end"} takes the place of all that follows.

Such a job also holds the `model` and the share of `extra` work; and for the user's modules the `path` to look in, the
name of this `side`, the `root` of its repository, the user's working `tree` if that is compared with a revision, the
names of the repository's `own` modules, and the prefixes of the variables that are `recorded`. `held` is the seconds of
a turn in which the process got no CPU. {"failure": a `Failure`, "lacking"} may take the place of any answer, and so may
{"stray"}: a module of the user's that comes from other files than this side's.

Server and job write whole lines to one pipe and never at the same time, so no line tears another. Each message begins
with an empty line, as a job may have died within a line. All messages are JSON, so the two sides may run different
Pythons. Where forking is unsafe (macOS, Windows), a server runs one job itself and ends.
"""

# Both sides run this fwbench, whatever their interpreters, unless fwbench itself is compared with an older revision:
# then each runs its own. A change in the content of any message or of the server's configuration needs a new version.
VERSION = 3
