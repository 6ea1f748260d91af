------------------------------- MODULE Kernel -------------------------------
(***************************************************************************)
(* The rules of shard coordination, as in the kernel: one operator per     *)
(* operation, each a sequence of checks in the order of its file in        *)
(* crates/gossip-coordination/src/protocol. This module has no variables.  *)
(* Its operators take a record and a clock offset, and return the decision *)
(* about a command.                                                        *)
(*                                                                         *)
(* TIME. Only differences matter, so a deadline is stored as the number of *)
(* ticks left until it by the true clock, and a tick decrements each. A    *)
(* command carries `ahead`: the offset of its sender's clock from the true *)
(* one, negative for a clock that lags. `now >= deadline` is `left <=      *)
(* ahead`, and `now + Lease` is `Lease + ahead`. There is no last instant, *)
(* so a search that ends has covered every instant.                        *)
(*                                                                         *)
(* KEYS are numbers. A shard has the keys lo..hi. A cursor is the last key *)
(* that is done, or 0.                                                     *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    Lease,          \* lease duration in ticks
    Skew,           \* maximum offset of a clock from the true one, both ways
    LogCap,         \* entries in a shard's log (production: 16)
    Sequenced,      \* whether the operations of a lease carry a sequence
    ShardLimit,     \* maximum number of shards
    Retries,        \* grants without progress before a shard is parked, or Unlimited
    NoWorker        \* the owner of a shard without a holder

\* More than the number of grants in any configuration.
Unlimited == 99

(***************************************************************************)
(* Records                                                                 *)
(***************************************************************************)

Min(a, b) == IF a <= b THEN a ELSE b
Max(a, b) == IF a >= b THEN a ELSE b

\* Behind every clock. Time stops counting here: no deadline can be more expired.
Past == -Skew

\* An offer is kept further into the past, because renewals are measured against it.
LongPast == -(Skew + Lease)

NoOffer == [move |-> "none"]

NewShard(lo, hi, fence, cursor, attempts) ==
    [lo |-> lo, hi |-> hi, status |-> "Active", fence |-> fence,
     owner |-> NoWorker, left |-> Past, offer |-> NoOffer,
     cursor |-> cursor, attempts |-> attempts, log |-> <<>>, seq |-> 0, spawned |-> <<>>]

IsTerminal(s) == s.status # "Active"
IsOffered(s) == s.offer # NoOffer

(***************************************************************************)
(* Decisions                                                               *)
(***************************************************************************)

Refuse(why) == [kind |-> "refuse", why |-> why]
AnswerAgain(answer) == [kind |-> "replay", answer |-> answer]

\* `births` are new shards, which get the next free numbers in this order.
Commit(s, births, answer) ==
    [kind |-> "commit", shard |-> s, births |-> births, answer |-> answer]

(***************************************************************************)
(* validation.rs: first the replay check, then the lease check             *)
(***************************************************************************)

\* find_replay: the log entries of an operation id.
LogEntries(s, id) == {n \in 1..Len(s.log) : s.log[n].id = id}

\* split_execution.rs, find_replayed_residual: the log may drop a residual split while its worker
\* still retries it, but the list of spawned shards never does.
Residuals(s, id) ==
    {n \in 1..Len(s.spawned) : s.spawned[n].id = id /\ s.spawned[n].act.op = "residual"}

WasExecuted(s, id, act) ==
    LogEntries(s, id) # {} \/ (act.op = "residual" /\ Residuals(s, id) # {})

\* The act of an executed operation; it represents the hash of its payload.
ExecutedAct(s, id) ==
    IF LogEntries(s, id) # {} THEN s.log[CHOOSE n \in LogEntries(s, id) : TRUE].act
    ELSE s.spawned[CHOOSE n \in Residuals(s, id) : TRUE].act

SamePayload(s, id, act) == ExecutedAct(s, id) = act

\* A replay derives its result, because the log stores none: splits from the list of spawned shards.
ReplayedAnswer(s, id, act) ==
    {s.spawned[n].shard : n \in
        {n \in 1..Len(s.spawned) : s.spawned[n].id = id /\ s.spawned[n].act = act}}

FenceIsCurrent(s, lease) == lease.fence = s.fence

\* now < deadline: a lease is over at its deadline.
LeaseLasts(s, ahead) == s.left > ahead

\* The lease checks. A stale fence is rejected here.
CheckLease(s, lease, ahead) ==
    IF IsTerminal(s) THEN "ShardTerminal"
    ELSE IF ~FenceIsCurrent(s, lease) THEN "StaleFence"
    ELSE IF s.owner = NoWorker THEN "StaleFence"
    ELSE IF ~LeaseLasts(s, ahead) THEN "LeaseExpired"
    ELSE IF s.owner # lease.worker THEN "StaleFence"
    ELSE "ok"

\* check_sequence: this operation or a later one of the lease was executed. The log was searched
\* before, so it is a duplicate that the log dropped, or a first delivery that was overtaken.
WasOvertaken(s, id) == Sequenced /\ id.n <= s.seq

\* check_cursor: no regression, within bounds. A checkpoint may repeat the cursor.
CheckCursor(s, key) ==
    IF key < s.cursor THEN "CursorRegression"
    ELSE IF key < s.lo \/ key > s.hi THEN "CursorOutOfBounds"
    ELSE "ok"

\* While an offer is open, its source may renew and withdraw and nothing else.
CheckNoOffer(s) == IF IsOffered(s) THEN "Offered" ELSE "ok"

(***************************************************************************)
(* protocol/evolve.rs: common parts of changes                             *)
(***************************************************************************)

\* The log is bounded: a new entry evicts the oldest.
Push(log, entry) ==
    IF Len(log) < LogCap THEN Append(log, entry) ELSE Append(Tail(log), entry)

Remember(s, id, act) == [s EXCEPT !.log = Push(@, [id |-> id, act |-> act])]

ClearLease(s) == [s EXCEPT !.owner = NoWorker, !.left = Past, !.offer = NoOffer]

End(s, status) == [ClearLease(s) EXCEPT !.status = status]

\* Any increment of the fence ends an offer.
Bump(s, fence) == [s EXCEPT !.fence = fence, !.offer = NoOffer]

\* Each increment has its own name, so that a mutation can change one of them.
AcquireFence(fence) == fence + 1
AcceptFence(fence) == fence + 1
UnparkFence(fence) == fence + 1
RevokeFence(fence) == fence + 1

\* A derived shard starts at its parent's fence, so a sink can order a zombie of the parent before
\* an owner of the child.
ChildFence(fence) == fence

\* Attempts are counted only where they are bounded; that keeps the other configurations small.
Count(attempts) == IF Retries = Unlimited THEN 0 ELSE attempts

AttemptsAfter(s, key) == IF key > s.cursor THEN 0 ELSE s.attempts

\* Each part of a split keeps one attempt (DESIGN Q13).
InheritedAttempts(s) == IF Retries = Unlimited THEN 0 ELSE Min(s.attempts, Max(Retries - 1, 0))

(***************************************************************************)
(* Grants: acquire.rs, accept.rs                                           *)
(***************************************************************************)

\* Sequences of different leases are not comparable.
RestartedSequence(seq) == 0

Granted(s, worker, fence, attempts, ahead) ==
    [Bump(s, fence) EXCEPT !.owner = worker, !.left = Lease + ahead,
                           !.attempts = Count(attempts), !.seq = RestartedSequence(@)]

\* A shard that ended is never granted.
MayBeGranted(s) == ~IsTerminal(s)

\* Also for the same worker: two processes may share a name by mistake.
LeaseIsLive(s, ahead) == s.owner # NoWorker /\ s.left > ahead

IsUsedUp(s) == Retries # Unlimited /\ s.attempts > Retries

AcquiredShard(s, worker, ahead) ==
    Granted(s, worker, AcquireFence(s.fence), s.attempts + 1, ahead)

\* An acquire of a shard that has used up its attempts commits the parking and returns that.
Acquire(s, worker, ahead) ==
    IF ~MayBeGranted(s) THEN Refuse("ShardTerminal")
    ELSE IF LeaseIsLive(s, ahead) THEN Refuse("AlreadyLeased")
    ELSE IF IsUsedUp(s) THEN Commit(End(s, "Parked"), <<>>, "gave up")
    ELSE Commit(AcquiredShard(s, worker, ahead), <<>>, "granted")

IsDestination(offer, worker) == offer.to = worker

OfferIsOpen(offer, ahead) == offer.left > ahead

AcceptedShard(s, worker, ahead) ==
    Granted(s, worker, AcceptFence(s.fence), s.attempts, ahead)

\* The increment of the fence in this commit is the commit point of the handoff.
Accept(s, worker, move, ahead) ==
    IF IsTerminal(s) THEN Refuse("ShardTerminal")
    ELSE IF ~IsOffered(s) THEN Refuse("NoOffer")
    ELSE IF s.offer.move # move THEN Refuse("NoOffer")
    ELSE IF ~IsDestination(s.offer, worker) THEN Refuse("NotDestination")
    ELSE IF ~OfferIsOpen(s.offer, ahead) THEN Refuse("OfferExpired")
    ELSE Commit(AcceptedShard(s, worker, ahead), <<>>, "granted")

(***************************************************************************)
(* renew.rs                                                                *)
(***************************************************************************)

\* While an offer is open, at most one lease beyond the offer, so that an owner that never withdraws
\* cannot hold a frozen shard forever.
RenewalLimit(s, wanted) ==
    IF IsOffered(s) THEN Min(wanted, s.offer.left + Lease) ELSE wanted

\* A renewal never shortens a lease, so replies that arrive out of order are harmless.
RenewedLeft(s, ahead) == Max(s.left, RenewalLimit(s, Lease + ahead))

RenewedShard(s, ahead) == [s EXCEPT !.left = RenewedLeft(s, ahead)]

Renew(s, lease, ahead) ==
    LET refusal == CheckLease(s, lease, ahead)
    IN  IF refusal # "ok" THEN Refuse(refusal)
        ELSE Commit(RenewedShard(s, ahead), <<>>, RenewedLeft(s, ahead))

(***************************************************************************)
(* checkpoint.rs, complete.rs, park.rs, release.rs                         *)
(***************************************************************************)

CheckpointedShard(s, act) ==
    [s EXCEPT !.cursor = act.key, !.attempts = AttemptsAfter(s, act.key)]

Checkpoint(s, id, act) ==
    LET refusal == CheckCursor(s, act.key)
    IN  IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
        ELSE IF refusal # "ok" THEN Refuse(refusal)
        ELSE Commit(Remember(CheckpointedShard(s, act), id, act), <<>>, {})

\* Records the end of a shard. Nothing is pushed after it, so it is never evicted.
RememberEnd(s, id, act) == Remember(s, id, act)

Complete(s, id, act) ==
    LET refusal == CheckCursor(s, act.key)
        done == [End(s, "Done") EXCEPT !.cursor = act.key]
    IN  IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
        ELSE IF refusal # "ok" THEN Refuse(refusal)
        ELSE Commit(RememberEnd(done, id, act), <<>>, {})

Park(s, id, act) ==
    IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
    ELSE Commit(Remember(End(s, "Parked"), id, act), <<>>, {})

\* A clean release does not count as an attempt.
AttemptsAfterRelease(s, act) == IF act.clean THEN Max(s.attempts - 1, 0) ELSE s.attempts

\* The fence is unchanged: without a holder no lease is accepted.
Release(s, id, act) ==
    LET free == [ClearLease(s) EXCEPT !.attempts = Count(AttemptsAfterRelease(s, act))]
    IN  IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
        ELSE Commit(Remember(free, id, act), <<>>, {})

(***************************************************************************)
(* split_replace.rs, split_residual.rs                                     *)
(***************************************************************************)

\* validate_split_coverage: the parts of the plan cover the whole range and none of them is empty.
Covers(s, act) == act.hi = s.hi /\ s.lo <= act.cut /\ act.cut < act.hi

\* validate_split_child_cursors: the child that contains the cursor carries exactly that cursor, and
\* no child lies wholly before it.
CarriesCursor(s, act) == act.carried = s.cursor /\ s.cursor <= act.cut

\* The limit is checked in the same commit.
HasRoom(shardCount, births) == shardCount + births <= ShardLimit

Spawn(s, id, act, first, count) ==
    [s EXCEPT !.spawned = @ \o [n \in 1..count |->
        [id |-> id, act |-> act, shard |-> first + n - 1]]]

Children(s, act) ==
    <<NewShard(s.lo, act.cut, ChildFence(s.fence), act.carried, InheritedAttempts(s)),
      NewShard(act.cut + 1, s.hi, ChildFence(s.fence), 0, InheritedAttempts(s))>>

Replace(s, id, act, shardCount) ==
    LET first == shardCount + 1
        parent == Spawn(End(s, "Split"), id, act, first, 2)
    IN  IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
        ELSE IF ~Covers(s, act) \/ ~CarriesCursor(s, act) THEN Refuse("SplitInvalid")
        ELSE IF ~HasRoom(shardCount, 2) THEN Refuse("ShardLimitExceeded")
        ELSE Commit(Remember(parent, id, act), Children(s, act), {first, first + 1})

\* The residual starts without progress: the parent's cursor lies to the left of it.
ResidualShard(s, act) ==
    NewShard(act.cut + 1, s.hi, ChildFence(s.fence), 0, InheritedAttempts(s))

ShrunkShard(s, act) == [s EXCEPT !.hi = act.cut]

\* validate_residual_split_bounds: the parent's cursor stays in its part.
KeepsProgress(s, act) == s.cursor <= act.cut

Residual(s, id, act, shardCount) ==
    LET first == shardCount + 1
        parent == Spawn(ShrunkShard(s, act), id, act, first, 1)
    IN  IF CheckNoOffer(s) # "ok" THEN Refuse("Offered")
        ELSE IF ~Covers(s, act) \/ ~KeepsProgress(s, act) THEN Refuse("SplitInvalid")
        ELSE IF ~HasRoom(shardCount, 1) THEN Refuse("ShardLimitExceeded")
        ELSE Commit(Remember(parent, id, act), <<ResidualShard(s, act)>>, {first})

(***************************************************************************)
(* offer.rs, withdraw.rs                                                   *)
(***************************************************************************)

OfferLeasesMax == 4

\* A withdrawal excludes an offer that is still in flight. The log records it.
WasWithdrawn(s, move) ==
    \E n \in 1..Len(s.log) : s.log[n].act.op = "withdraw" /\ s.log[n].act.move = move

\* The same offer under another operation id is the same offer; any other is rejected while it is
\* open.
Standing(act, left) == [move |-> act.move, to |-> act.to, key |-> act.key, left |-> left]

OfferedShard(s, act, left) ==
    [s EXCEPT !.offer = Standing(act, left),
              !.cursor = Max(@, act.key),
              !.attempts = AttemptsAfter(s, act.key)]

\* An offer without a key keeps the stored cursor.
Offer(s, lease, id, act, left, ahead) ==
    LET refusal == IF act.key = 0 THEN "ok" ELSE CheckCursor(s, act.key)
    IN  IF IsOffered(s) THEN
            IF s.offer = Standing(act, left) THEN AnswerAgain({}) ELSE Refuse("Offered")
        ELSE IF WasWithdrawn(s, act.move) THEN Refuse("Withdrawn")
        ELSE IF act.to = lease.worker THEN Refuse("InvalidDestination")
        ELSE IF left <= ahead \/ left > ahead + OfferLeasesMax * Lease
            THEN Refuse("InvalidOfferDeadline")
        ELSE IF refusal # "ok" THEN Refuse(refusal)
        ELSE Commit(Remember(OfferedShard(s, act, left), id, act), <<>>, {})

WithdrawnShard(s, id, act) == Remember([s EXCEPT !.offer = NoOffer], id, act)

\* Commits even without an open offer: it excludes an offer that is still in flight.
Withdraw(s, id, act) ==
    IF IsOffered(s) /\ s.offer.move # act.move THEN Refuse("NoOffer")
    ELSE Commit(WithdrawnShard(s, id, act), <<>>, {})

(***************************************************************************)
(* protocol/mod.rs: the order of the checks                                *)
(***************************************************************************)

\* The operation's own rules, after the lease check.
OwnRules(s, lease, id, act, left, shardCount, ahead) ==
    CASE act.op = "checkpoint" -> Checkpoint(s, id, act)
      [] act.op = "complete"   -> Complete(s, id, act)
      [] act.op = "park"       -> Park(s, id, act)
      [] act.op = "release"    -> Release(s, id, act)
      [] act.op = "replace"    -> Replace(s, id, act, shardCount)
      [] act.op = "residual"   -> Residual(s, id, act, shardCount)
      [] act.op = "offer"      -> Offer(s, lease, id, act, left, ahead)
      [] act.op = "withdraw"   -> Withdraw(s, id, act)

\* The record keeps the highest executed sequence of the lease.
Numbered(d, id) ==
    IF Sequenced /\ d.kind = "commit" THEN [d EXCEPT !.shard.seq = id.n] ELSE d

\* The replay check comes first: an executed operation returns its result, whatever the state of the
\* lease.
Decide(s, lease, id, act, left, shardCount, ahead) ==
    IF WasExecuted(s, id, act) THEN
        IF SamePayload(s, id, act) THEN AnswerAgain(ReplayedAnswer(s, id, act))
        ELSE Refuse("OpIdConflict")
    ELSE IF CheckLease(s, lease, ahead) # "ok" THEN Refuse(CheckLease(s, lease, ahead))
    ELSE IF WasOvertaken(s, id) THEN Refuse("OperationTooOld")
    ELSE Numbered(OwnRules(s, lease, id, act, left, shardCount, ahead), id)

(***************************************************************************)
(* Administrators hold no lease: unpark.rs, revoke_lease.rs                *)
(***************************************************************************)

UnparkedShard(s) ==
    [Bump(s, UnparkFence(s.fence)) EXCEPT !.status = "Active", !.attempts = 0]

\* A done or split shard is final.
MayBeUnparked(s) == s.status = "Parked"

AdminRules(s, id, act) ==
    CASE act.op = "unpark" ->
            IF ~MayBeUnparked(s) THEN Refuse("NotParked")
            ELSE Commit(Remember(UnparkedShard(s), id, act), <<>>, {})
      [] act.op = "revoke" ->
            IF IsTerminal(s) THEN Refuse("ShardTerminal")
            ELSE IF s.owner = NoWorker THEN Refuse("NotLeased")
            ELSE Commit(Remember(Bump(ClearLease(s), RevokeFence(s.fence)), id, act), <<>>, {})

DecideAdmin(s, id, act) ==
    IF WasExecuted(s, id, act) THEN
        IF SamePayload(s, id, act) THEN AnswerAgain({}) ELSE Refuse("OpIdConflict")
    ELSE AdminRules(s, id, act)

=============================================================================
