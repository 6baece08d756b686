"""Every situation that an explanation can name, by a code that stays what it is.

A row says what the code means, why it comes about, and what to do. The reference page and the page of the server are
drawn from here, so that whatever is answered can be looked up; a test holds that nothing else is ever answered.
"""

from __future__ import annotations

from typing import NamedTuple

PAGE = "/docs/explain"  # where the server shows what codes mean


class Code(NamedTuple):
    code: str
    means: str
    why: str
    do: str

    @property
    def page(self) -> str:
        return f"{PAGE}#{self.code}"


# ── jobs and triggers ──
_JOBS = (
    Code(
        "job.deleted", "The job was deleted.",
        "Whoever deletes a job ends its triggers and cancels its live runs. Its history stays until retention.",
        "Submit the job again; it gets a new id.",
    ),
    Code(
        "job.paused", "Somebody paused the job, so none of its triggers fires.",
        "`horae pause` and the API pause a job. Moments that pass meanwhile are not made up for.",
        "`horae resume JOB`.",
    ),
    Code(
        "job.paused.breaker", "The job paused itself because its runs kept failing.",
        "`pause_after_failures` in the job says after how many failed runs in a row.",
        "Mend the cause, then `horae resume JOB`: the count begins anew.",
    ),
    Code(
        "job.task", "The job is a task that is written in a workflow, and runs when that does.",
        "Tasks have no triggers of their own.", "Explain the workflow, or one of its runs.",
    ),
    Code(
        "job.no_trigger", "Nothing fires the job: it has no trigger, and comes after no other job.",
        "A job without a schedule runs when somebody asks for it.",
        "`horae run JOB`, or give it a `schedule`. Change the job document and submit it again.",
    ),
    Code(
        "job.follows", "The job has no trigger of its own: its runs are made when the jobs in `after` end.",
        "So it is written in its `after`.", "Explain the jobs that it comes after.",
    ),
    Code("job.idle", "Nothing of the job waits or runs.", "All its runs have ended.", "Nothing."),
    Code(
        "job.no_run", "The job has no run yet.",
        "None of its moments has come, and nobody has asked for one.", "Nothing.",
    ),
    Code("trigger.next", "When the trigger goes next.", "So its schedule says.", "Nothing."),
    Code(
        "trigger.disabled", "The trigger is switched off.",
        "Somebody set `enabled: false`. Its moments are not made up for.",
        'Set `enabled: true` in the document, or `PATCH /v1/triggers/ID` with `{"enabled": true}`.',
    ),
    Code(
        "trigger.over", "The trigger has no further moment.",
        "Its schedule is over: it was for once, its `end_at` has passed, or its rule has counted to its end.",
        "Give the trigger a new schedule, or run the job by hand.",
    ),
    Code(
        "trigger.outside", "The trigger has no moments: something outside fires it.",
        "It is a webhook, or waits for the end of another job's runs.",
        "Call the webhook, or look at the job whose end it waits for.",
    ),
    Code(
        "trigger.unreadable", "This node cannot read the schedule of the trigger.",
        "A newer node wrote it, or knows more time zones.", "Upgrade this node; others may fire it meanwhile.",
    ),
    Code(
        "trigger.overdue", "The moment of the trigger has come, and it has not been fired yet.",
        "A scheduler fires what it owns within milliseconds, unless it is catching up, cut off or gone.",
        "`horae nodes` says who is there; the log of the scheduler says what it does.",
    ),
    Code(
        "segment.unowned", "No scheduler owns the segment of the job.",
        "Segments are given out by the leader to live schedulers. There is none, or it was given none yet.",
        "Start a node with the role scheduler (`horae up`).",
    ),
)  # fmt: skip

# ── moments ──
_MOMENTS = (
    Code("moment.not_yet", "The moment is in the schedule, and still to come.", "It is not that late yet.", "Wait."),
    Code(
        "moment.none", "The schedule has no such moment.",
        "What the schedule says does not give this moment; the nearest before and after are named.",
        "Change the job document and submit it again, if it should. `horae preview` shows the moments of a schedule.",
    ),
    Code(
        "moment.before_creation", "The moment lies before the trigger was made.",
        "Moments begin at creation: nothing is made up for what lies before.",
        "Run the job by hand with the data of that moment.",
    ),
    Code(
        "moment.before_start", "The moment lies before `start_at`.",
        "The trigger begins with its `start_at`.",
        "Change the job document and submit it again with an earlier `start_at`.",
    ),
    Code(
        "moment.after_end", "The moment lies after `end_at`.",
        "The trigger ends with its `end_at`.", "Change the job document and submit it again with a later `end_at`.",
    ),
    Code(
        "moment.gap", "The clock never shows that time on that day: clocks are put forward over it.",
        "Daylight saving time begins. With `dst: {gap: run_after}` the run comes when the gap ends, with `gap: skip` "
        "not at all.",
        "Choose another time of day, `timezone: UTC`, or another `dst.gap`.",
    ),
    Code(
        "moment.fold", "The clock shows that time twice on that day: clocks are put back.",
        "Daylight saving time ends. `dst.fold` says which of the two fires: first, second or both.",
        "Choose another time of day, `timezone: UTC`, or another `dst.fold`.",
    ),
    Code(
        "moment.moved", "Daylight saving time moved the moment, or doubled it.",
        "The time of day in the schedule does not exist on that day, or exists twice.",
        "Nothing, or another `dst` in the trigger.",
    ),
    Code(
        "moment.spread", "The moment is moved by a constant of the trigger.",
        "`jitter` adds a constant below it, and `H` in a cron expression chooses a value, both by the id of the "
        "trigger.",
        "Change the job document and submit it again without `jitter` or `H`.",
    ),
    Code(
        "moment.delay", "The trigger has no fixed moments: it counts from the end of its last run.",
        "So `mode: delay` wants it.", "Leave `mode: delay` out for fixed moments.",
    ),
    Code(
        "moment.changed", "There is no record of the moment, and the job was changed since.",
        "At that moment it may have been paused, its trigger off, or its schedule another: the audit log says who "
        "changed it, and what it said before. A change never drops a moment that is due.",
        "`horae audit --kind job --id JOB` shows all changes.",
    ),
    Code(
        "moment.pending", "The moment has passed, and its record is still to come.",
        "Nobody has fired it yet: every due moment gets its record when a scheduler catches up.",
        "`horae nodes` says who is there.",
    ),
    Code(
        "moment.unknown", "There is no record of the moment where it should be.",
        "Retention removes ended runs after a time; or more records were made at once than are looked through.",
        "`horae runs --job JOB --since …` lists what there is.",
    ),
)  # fmt: skip

# ── what a run waits for ──
_WAITS = (
    Code(
        "wait.soon", "An agent has room for the run: it is about to be taken.",
        "Agents take what waits within milliseconds.", "Nothing. If it stays so, look at the log of that agent.",
    ),
    Code(
        "wait.no_agents", "No agent is there.",
        "No node with the role agent is live.", "Start one: `horae up`, or `horae agent --server HOST:PORT`.",
    ),
    Code(
        "wait.kind", "No live agent runs this kind of work.",
        "Agents say which kinds they can run. Such a run fails soon, with what installs the kind.",
        "Install what the kind needs on an agent, and start it again.",
    ),
    Code(
        "wait.label", "No agent that runs this kind of work has the labels that the run needs.",
        "`labels` of the job, and of its queue, must all be had by the agent.",
        "Start an agent with them (`--label`), or take the label out of the job.",
    ),
    Code(
        "wait.pin", "Only one node may take the run, and it is not there.",
        "The run was asked for on that node.",
        "Start the node again, or cancel the run and ask for it without the node.",
    ),
    Code(
        "wait.resources.never", "No agent has as much as the run asks for, even when it does nothing else.",
        "`resources` of the job ask for more than any live agent offers.",
        "Start a larger agent, or ask for less in `resources`.",
    ),
    Code(
        "wait.resources", "Agents could run it, but not enough of what it asks for is free now.",
        "Other runs have it.", "Wait for them, start another agent, or ask for less in `resources`.",
    ),
    Code(
        "wait.slots", "All slots of the agents that could run it are busy.",
        "An agent runs as many at once as it has slots.", "Wait, raise `--slots`, or start another agent.",
    ),
    Code(
        "wait.cordoned", "The agents that could run it take nothing new: an operator said so.",
        "`horae nodes cordon` and `horae nodes drain` keep new work from a node.", "`horae nodes uncordon NODE`.",
    ),
    Code(
        "wait.draining", "The agents that could run it are going away.",
        "A node that is being stopped takes nothing new.", "Wait for it to come back, or start another agent.",
    ),
    Code(
        "wait.ailing", "The agents that could run it are short of something on their machine.",
        "An agent whose disk or memory runs out takes nothing new until it has some.", "Make room on that machine.",
    ),
    Code(
        "wait.line", "Others go before it.",
        "Higher priority goes first; of equal ones, shares take turns by weight (fair share), and within a share the "
        "older run.",
        "Wait, give the job a higher `priority`, or its share more weight in the queue.",
    ),
    Code(
        "wait.queue_paused", "Its queue is paused: nothing starts from it.",
        "Somebody paused the queue.", "`horae queues resume NAME`.",
    ),
    Code(
        "wait.limit.queue", "Its queue runs as many at once as it may.",
        "`concurrency` of the queue says how many.", "Wait for one to end, or raise it: `horae queues set NAME`.",
    ),
    Code(
        "wait.limit.concurrency", "As many run with its key as may at once.",
        "`concurrency_limits` of the job say how many, and what is counted together.",
        "Wait for one to end, or raise the limit in the job.",
    ),
    Code(
        "wait.limit.resource", "The cluster has not enough left of what it asks for.",
        "`horae resources` says how much there is; running runs have the rest.",
        "Wait for one to end, or `horae resources set NAME N`.",
    ),
    Code(
        "wait.limit.rate", "A rate lets the next one start only later.",
        "`rate_limits` of the job, or `rate` of its queue, say how many may start in a time.",
        "Wait until then, or raise the rate.",
    ),
    Code(
        "wait.overlap", "Another run of the job is live, and this one waits for its end.",
        "With `overlap: queue` or `replace`, a job has one run at a time.",
        "Wait, cancel the other one, or say `overlap: allow`.",
    ),
    Code(
        "wait.retry", "It failed, and is tried again later.",
        "`retry` of the job says how often, and how long between.", "Wait, or cancel it.",
    ),
    Code(
        "wait.later", "It was ordered for a moment that is still to come.",
        "Whoever ordered it named the moment.", "Wait, or cancel it.",
    ),
    Code(
        "wait.debounce", "More orders like it may come, so it waits for a while without one.",
        "`debounce` of the job says for how long.", "Wait, or cancel it.",
    ),
    Code(
        "wait.dependency", "It comes after other runs that have not ended.",
        "`after` of the job names them.",
        "Explain the run that it waits for; cancelling that one decides this one, too.",
    ),
    Code(
        "wait.children", "Its tasks, or runs that it called, have not ended.",
        "A workflow waits for its tasks without holding a slot.", "Explain the tasks that are named.",
    ),
    Code(
        "wait.signal", "It waits to be told something.",
        "Its job or its handler asked for a signal of that name.", "`horae signal RUN NAME`.",
    ),
    Code(
        "wait.ping", "Others run it: it waits for a ping that tells how it ended.",
        "Its job is `watched`: Horae expects it at its moments and only hears of it. Without a ping within `grace` "
        "the run has failed.",
        "Nothing, if it runs; else look where it should. `horae ping-url JOB` shows the address for its pings.",
    ),
    Code(
        "wait.approval", "It waits for somebody's decision.",
        "Its task asks for an approval.", "One of those who may decides: `horae approve RUN` or `horae reject RUN`.",
    ),
    Code(
        "wait.snoozed", "It asked to go on later.",
        "Its handler or its task waits for a time.", "Wait, or cancel it.",
    ),
    Code(
        "wait.destination", "Another run writes what it would write.",
        "Work on data has its destination for itself, the oldest run first.", "Wait for that run, or cancel it.",
    ),
    Code(
        "wait.start_deadline", "If nobody begins it in time, it is skipped.",
        "`start_deadline` of the job says until when it makes sense.", "Nothing, or a later `start_deadline`.",
    ),
    Code(
        "wait.lost", "Its last agent was lost, and it waits for another.",
        "A run whose agent died is tried again, outside the budget of its retries.", "Nothing.",
    ),
    Code(
        "wait.server", "A server begins it: this kind of work takes no agent.",
        "Workflows and waits are driven by whichever node serves.",
        "Nothing. If it stays so, look at the log of the nodes.",
    ),
    Code(
        "wait.outside", "It is kept for workers outside Horae, and none has taken it.",
        "A worker that pulls runs over HTTP began it, or its contract leaves it to such workers.",
        "Start a worker that asks for such runs.",
    ),
    Code("wait.other", "It is blocked.", "Its reason and its message say why.", "See its message."),
    Code("agent.could", "This agent could take the run.", "It has the kind, the labels and the resources.", "Nothing."),
    Code(
        "agent.cannot", "This agent cannot take the run.",
        "The sentence says what is in the way.", "See the sentence.",
    ),
)  # fmt: skip

# ── what became of a run ──
_ENDS = (
    Code("run.running", "The run is being worked at.", "An agent took it.", "`horae logs -f RUN` follows it."),
    Code(
        "run.cancelling", "Somebody wants the run cancelled: it ends when its processes are gone.",
        "`horae cancel`, a newer run, or the deletion of its job.", "Wait.",
    ),
    Code("run.succeeded", "The run succeeded.", "Its work ended well.", "Nothing."),
    Code(
        "run.skipped.overlap", "It did not run: another run of its job was live.",
        "With `overlap: forbid`, and with `queue` when enough wait, a job that is busy skips the moment.",
        "Say `overlap: queue` or `allow`, make the job shorter, or run it less often.",
    ),
    Code(
        "run.skipped.misfire", "It did not run: its moment had passed before anybody could fire it.",
        "With `misfire: skip`, a moment that is fired more than a minute late is not run.",
        "Say `misfire: run_latest` or `run_all`.",
    ),
    Code(
        "run.skipped.start_deadline", "It did not run: nobody began it before its start deadline.",
        "`start_deadline` of the job says until when it makes sense.",
        "Give it more time, more agents or a higher priority.",
    ),
    Code(
        "run.skipped.queue_draining", "It did not run: its queue took nothing new.",
        "Somebody drained the queue; moments of triggers are skipped meanwhile.", "`horae queues resume NAME`.",
    ),
    Code(
        "run.skipped.owner", "It did not run: the owner of its job may not run it.",
        "A job runs with the rights that its owner has at that moment; the owner was disabled, is no member of the "
        "organisation any more, or may only look. What waited already when that changed is skipped too.",
        "Enable the owner or give back its role; or let somebody else submit the job.",
    ),
    Code(
        "run.skipped.dependency", "It did not run: what it comes after ended otherwise, or never came.",
        "`after` of the job, or `needs` of a task, asks for a success, a failure or an end.",
        "Mend what it comes after; `on: end` takes any end.",
    ),
    Code(
        "run.skipped.signal", "It did not run: what it waited to be told did not come in time.",
        "Its wait has `within`, and `otherwise: skip`.", "Send the signal sooner, or allow more time.",
    ),
    Code("run.skipped.other", "It did not run.", "Its reason and its message say why.", "See its message."),
    Code(
        "run.coalesced", "It did not run by itself: another run stands for its moment.",
        "Of moments that were missed, `misfire: run_latest` runs the last, `run_all` the last `misfire_limit`.",
        "Look at the run that stands for it, or say `misfire: run_all`.",
    ),
    Code(
        "run.failed.exit", "Its command ended with an exit code that means failure.",
        "The work itself failed.", "Read its log: `horae logs RUN`.",
    ),
    Code(
        "run.wall", "A step met a wall: of its sandbox, of its limits, or of the file that it wanted to start.",
        "Sandboxed steps see no files of the host, and only the network that their job names.",
        "Add the line that is named to the job, or see troubleshooting.",
    ),
    Code(
        "run.failed.error", "Its work could not be begun, or broke.",
        "The message says how.", "Read its message and its log.",
    ),
    Code(
        "run.failed.lost", "Its agents were lost, again and again.",
        "After five lost attempts a run is given up: it may be what kills them.",
        "See what each attempt was doing; look at the machines for memory and disk.",
    ),
    Code(
        "run.failed.no_agent", "No live agent could run this kind of work.",
        "Agents say which kinds they can run.", "The message names what installs it.",
    ),
    Code(
        "run.failed.timeout", "It waited in vain for a signal or a decision, and failed by that.",
        "Its wait has `within`, and `otherwise: fail`.", "Decide sooner, or allow more time.",
    ),
    Code(
        "run.failed.output_limit", "It wrote more than it may.",
        "The output of one attempt is limited.", "Write less, or raise `output_limit` in the settings.",
    ),
    Code(
        "run.failed.oom", "It was killed because it needed more memory than its limit.",
        "The limit of memory in the job, or of its sandbox.", "Raise the memory of the job, or use less.",
    ),
    Code(
        "run.failed.processes", "It made more processes than its limit.",
        "The limit of its sandbox.", "Raise the limit, or make fewer.",
    ),
    Code(
        "run.failed.bad_result", "What it gave as its result cannot be kept.",
        "It is too large, too deep or no JSON.", "Return less, or write a file and keep it as an artifact.",
    ),
    Code(
        "run.failed.rejected", "Somebody who may decide said no.",
        "Its task asks for an approval.", "Ask who rejected it; run it again if need be.",
    ),
    Code(
        "run.failed.owner", "A task, or what a handler called, did not begin: the owner of its job may not run it.",
        "A job runs with the rights that its owner has at that moment, its tasks too.",
        "Enable the owner or give back its role, then `horae runs retry` goes on with the workflow.",
    ),
    Code(
        "run.failed.task", "One of its tasks failed.",
        "A workflow fails with a task that must succeed.", "`horae runs retry RUN` goes on from there.",
    ),
    Code(
        "run.failed.missed", "Others run it, and nobody told in time how it ended.",
        "Its job is `watched`, and no ping of its end came within `grace`.",
        "See where the job runs whether it did, and whether it pings the address of `horae ping-url JOB`; or allow a "
        "longer `grace`.",
    ),
    Code("run.failed.other", "It failed.", "Its reason and its message say why.", "See its message."),
    Code(
        "run.no_retry", "It failed, and was not tried again.",
        "`retry` of the job allows so many attempts, and may name exceptions that are not worth another; what does the "
        "work may find so itself.",
        "Give the job more attempts in `retry`, or mend what the message names.",
    ),
    Code(
        "run.timed_out", "It ran longer than it may, and was killed.",
        "`timeout` of the job limits each attempt.", "Raise `timeout`, or make it faster.",
    ),
    Code(
        "run.cancelled.requested", "Somebody cancelled it.",
        "`horae cancel` or the API.", "Run it again, if it should run.",
    ),
    Code(
        "run.cancelled.itself", "Its own handler put an end to it.",
        'It raised `Cancel("why")`: there was nothing to do, or no sense in going on. It is not tried again.',
        "Read its log, if it should have gone on: `horae logs RUN`.",
    ),
    Code(
        "run.cancelled.replaced", "A newer run of its job took its place.",
        "With `overlap: replace`, the newest counts.",
        "Say `overlap: queue` or `allow`, if it should have run to its end.",
    ),
    Code("run.cancelled.deleted", "Its job was deleted.", "Deleting a job cancels its live runs.", "Nothing."),
    Code("run.cancelled.other", "It was cancelled.", "Its reason and its message say why.", "See its message."),
)  # fmt: skip

# ── attempts, and lateness ──
_TIMES = (
    Code(
        "attempt.failed", "An earlier attempt failed, and the run was tried again.",
        "`retry` of the job allows more attempts.", "Read the log of that attempt: `horae logs RUN --attempt N`.",
    ),
    Code(
        "attempt.lost", "An earlier attempt was lost with its agent.",
        "Its node fell silent for longer than its lease, or said that the work is gone.",
        "Look at that node. What was lost is tried again, at most five times.",
    ),
    Code("run.times", "When it was due, fired, begun and ended.", "So it is recorded.", "Nothing."),
    Code(
        "late.down", "It was fired late: no scheduler that is there now had been started at its moment.",
        "The server was down.", "Run more than one node, so that another takes over.",
    ),
    Code(
        "late.segment", "It was fired late: its segment got its owner after its moment.",
        "A scheduler had gone, and the leader gave its segments to others.",
        "Nothing; a shorter lease takes over sooner.",
    ),
    Code(
        "late.fired", "It was fired late.",
        "Its scheduler was catching up, busy, or cut off from the database: which of these is not recorded.",
        "Look at `horae_fire_lateness` in the metrics, and the log of the scheduler.",
    ),
    Code(
        "late.slots", "It was begun late: all slots of its agent were busy.",
        "The records of other runs show what the agent ran meanwhile.", "Raise `--slots`, or start another agent.",
    ),
    Code(
        "late.limit", "It was begun late: as many runs as its limit allows were running.",
        "The records of other runs of the job show them.", "Raise the limit, or run it less often.",
    ),
    Code(
        "late.overlap", "It was begun late: another run of its job had to end first.",
        "With `overlap: queue` or `replace` a job has one run at a time; the end of that one is in its record.",
        "Make the job shorter, run it less often, or say `overlap: allow`.",
    ),
    Code(
        "late.dependency", "It was begun late: what it comes after ended only then.",
        "`after` of the job names it; its end is in its record.", "Explain that run.",
    ),
    Code(
        "late.waited", "It was begun late.",
        "It waited for an agent or a limit: for which, its record does not say.",
        "Explain a run while it waits: then all is known.",
    ),
    Code(
        "late.retried", "Its last attempt was begun late, after earlier ones.",
        "Earlier attempts failed or were lost.", "See the attempts.",
    ),
    Code(
        "late.paused", "It went on late, after pauses of its own.",
        "It waited to be told something, for runs that it called, for a time that it chose, or for what it needs.",
        "Nothing: so its work wanted it.",
    ),
)  # fmt: skip

CODES: dict[str, Code] = {one.code: one for one in (*_JOBS, *_MOMENTS, *_WAITS, *_ENDS, *_TIMES)}
