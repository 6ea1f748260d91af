---------------------------- MODULE Coordination ----------------------------
(***************************************************************************)
(* The environment of the kernel: workers with leases, requests in flight, *)
(* a sink for results, administrators, and time.                           *)
(*                                                                         *)
(* WORKERS. A grant is everything that one worker believes under one       *)
(* lease. Grants are never removed: a worker that lost its shard, or was   *)
(* declared dead, receives no notice and continues as a zombie with its    *)
(* beliefs. A crashed worker is one that takes no more steps.              *)
(*                                                                         *)
(* MESSAGES. A message sent under a lease stays in flight forever. Each    *)
(* delivery is the first or a duplicate, in any order, at any later time;  *)
(* a message that is never delivered was lost. A message without an effect *)
(* so far may have been sent at any earlier time, so it is sent when it    *)
(* first arrives: the messages that a worker can send now include those    *)
(* that it could send before. Only an offer is sent in a step of its own,  *)
(* because it freezes its sender. A reply is received or lost; it changes  *)
(* a worker's beliefs only where `Hear` says so.                           *)
(*                                                                         *)
(* SINK. It stores one result for each key, with the fence of its writer.  *)
(* It accepts a write unless it has seen a higher fence for the key.       *)
(* Writes are duplicated and delayed like messages. A worker writes a key  *)
(* before it counts the key as done.                                       *)
(*                                                                         *)
(* OBSERVER. It sees decisions and replies, keeps its own history in       *)
(* `truth`, and adds the name of every law that it saw broken to `broken`. *)
(* It never reads a record to learn what happened. Laws are stated over    *)
(* effects: the writes and operations that the sink or the coordinator     *)
(* accepted, and from which grant; not over the owner in a record.         *)
(*                                                                         *)
(* NAMES. A law is named after its violation, as in `Rule` of              *)
(* verify/gossip-sim/src/model/oracle.rs: the invariant                    *)
(* `StaleFence` holds as long as nothing was accepted from a stale fence.  *)
(***************************************************************************)
EXTENDS Kernel

CONSTANTS
    Workers,        \* worker names
    Moves,          \* handoff ids
    KeyCount,       \* the keys are 1..KeyCount, in one root shard
    Operations,     \* operations enabled in this configuration
    GrantsMax,      \* maximum number of grants
    SendsMax,       \* maximum number of operations executed and offers sent under one lease
    AdminIds,       \* operation ids that administrators use
    OfferTime,      \* ticks that a destination has to accept an offer
    Careless        \* whether workers reuse an operation id

VARIABLES
    shards,         \* content of the store: a sequence of records
    grants,         \* beliefs of workers: a sequence in grant order
    sink,           \* the last accepted write of each key
    truth,          \* the observer's own history of each shard
    reached,        \* observer: keys that were ever at or below a cursor
    broken          \* observer: laws seen broken

vars == <<shards, grants, sink, truth, reached, broken>>

Keys == 1..KeyCount
Clocks == -Skew..Skew
ShardIds == 1..Len(shards)
GrantIds == 1..Len(grants)

NoMove == "none"
Unwritten == [fence |-> 0, grant |-> 0]

FirstFence == 1

\* One definition for all new shards.
NewTruth(s) ==
    [last |-> 0, deadline |-> Past, fence |-> s.fence, acked |-> s.cursor, attempts |-> s.attempts,
     status |-> "Active", offer |-> NoOffer, memory |-> <<>>, residuals |-> <<>>, seq |-> 0]

Init ==
    /\ shards = <<NewShard(1, KeyCount, FirstFence, 0, 0)>>
    /\ grants = <<>>
    /\ sink = [k \in Keys |-> Unwritten]
    /\ truth = <<NewTruth(shards[1])>>
    /\ reached = {}
    /\ broken = {}

(***************************************************************************)
(* Leaves and their progress                                               *)
(***************************************************************************)

Leaves(ss) == {s \in 1..Len(ss) : ss[s].status # "Split"}

\* The keys at or below the cursor of the leaf they belong to.
Progress(ss) ==
    {k \in Keys : \E s \in Leaves(ss) : ss[s].lo <= k /\ k <= Min(ss[s].cursor, ss[s].hi)}

(***************************************************************************)
(* OBSERVER                                                                *)
(*                                                                         *)
(* `truth[s]`:                                                             *)
(*   last       the grant that holds the shard, 0 if none                  *)
(*   deadline   the deadline returned to that grant (ticks left)           *)
(*   fence      the highest fence so far                                   *)
(*   acked      the last acknowledged cursor                               *)
(*   attempts   grants since the last progress, where they are bounded     *)
(*   status     active, or how the shard ended: a parked shard may         *)
(*              return, a done or split one never does                     *)
(*   offer      the open offer                                             *)
(*   memory     the last LogCap executed operations                        *)
(*   residuals  the executed residual splits, which are never dropped      *)
(*   seq        the highest sequence executed under the last grant         *)
(***************************************************************************)

When(condition, law) == IF condition THEN {law} ELSE {}

IsHeld(t, ahead) == t.last # 0 /\ t.deadline > ahead

\* The observer's entry for an operation id: at most one, newest first.
Recalled(t, id, op) ==
    LET log == {n \in 1..Len(t.memory) : t.memory[n].id = id}
        list == {n \in 1..Len(t.residuals) : t.residuals[n].id = id}
    IN  IF log # {} THEN {t.memory[CHOOSE n \in log : TRUE]}
        ELSE IF op = "residual" /\ list # {} THEN {t.residuals[CHOOSE n \in list : TRUE]}
        ELSE {}

\* A repeated operation returns its first result and is not executed again; an operation that was
\* never executed is not answered from the log; an id with another payload is rejected.
BreaksReplay(t, id, act, left, d) ==
    LET recalled == Recalled(t, id, act.op)
        sameOffer == act.op = "offer" /\ t.offer = Standing(act, left)
    IN  IF recalled = {} THEN When(d.kind = "replay" /\ ~sameOffer, "Replay")
        ELSE LET entry == CHOOSE e \in recalled : TRUE
             IN  IF entry.act = act
                 THEN When(d.kind # "replay" \/ d.answer # entry.answer, "Replay")
                 ELSE When(d.kind # "refuse" \/ d.why # "OpIdConflict", "OpIdReused")

\* An operation at or below the executed sequence is not executed, however long ago it was executed
\* or overtaken; and no other operation is refused for that.
BreaksSequence(t, id, d) ==
    LET passed == Sequenced /\ id.n <= t.seq
    IN  When(d.kind = "commit" /\ passed, "Replay")
        \cup When(d.kind = "refuse" /\ d.why = "OperationTooOld" /\ ~passed, "OwnerShutOut")

\* The holder of a live lease is not rejected for lack of a lease.
ShutOut(t, g, d, ahead) ==
    /\ d.kind = "refuse"
    /\ d.why \in {"StaleFence", "LeaseExpired", "ShardTerminal"}
    /\ t.last = g
    /\ IsHeld(t, ahead)

\* An effect must come from the last grant, before its deadline.
BreaksLease(t, g, d, ahead) ==
    LET executed == d.kind = "commit"
    IN  When(executed /\ t.last # g, "StaleFence")
        \cup When(executed /\ t.last = g /\ t.deadline <= ahead, "Expired")
        \cup When(ShutOut(t, g, d, ahead), "OwnerShutOut")

\* An offer that can no longer be accepted is rejected, and only the open offer is withdrawn.
BreaksHandoff(t, act, left, ahead) ==
    CASE act.op = "offer" -> left <= ahead
      [] act.op = "withdraw" -> t.offer # NoOffer /\ t.offer.move # act.move
      [] OTHER -> FALSE

\* The laws that a decision about a message of grant `g` breaks.
BreaksHeld(t, g, id, act, left, d, ahead) ==
    LET executed == d.kind = "commit"
    IN  BreaksReplay(t, id, act, left, d)
        \cup BreaksSequence(t, id, d)
        \cup BreaksLease(t, g, d, ahead)
        \cup When(executed /\ t.offer # NoOffer /\ act.op # "withdraw", "FrozenSource")
        \cup When(executed /\ BreaksHandoff(t, act, left, ahead), "Handoff")

PushMemory(memory, entry) ==
    IF Len(memory) < LogCap THEN Append(memory, entry) ELSE Append(Tail(memory), entry)

Recall(t, id, act, answer) ==
    LET entry == [id |-> id, act |-> act, answer |-> answer]
    IN  [t EXCEPT !.memory = PushMemory(@, entry),
                  !.residuals = IF act.op = "residual" THEN Append(@, entry) ELSE @]

Freed(t) == [t EXCEPT !.last = 0, !.deadline = Past, !.offer = NoOffer]
Ended(t, status) == [Freed(t) EXCEPT !.status = status]

\* Progress resets the count.
Advanced(t, key) ==
    [t EXCEPT !.acked = Max(@, key), !.attempts = IF key > t.acked THEN 0 ELSE @]

\* An acknowledged end is final. An administrator, who has no lease, may change an active shard and
\* unpark a parked one.
BreaksEnd(t, needed) == When(t.status # needed, "Acknowledged")

\* The effect of a holder's executed operation on the history.
Learned(t, act, left) ==
    CASE act.op = "checkpoint" -> Advanced(t, act.key)
      [] act.op = "complete"   -> [Ended(t, "Done") EXCEPT !.acked = Max(@, act.key)]
      [] act.op = "park"       -> Ended(t, "Parked")
      [] act.op = "replace"    -> Ended(t, "Split")
      [] act.op = "release"    ->
            [Freed(t) EXCEPT !.attempts = IF act.clean THEN Max(@ - 1, 0) ELSE @]
      [] act.op = "residual"   -> t
      [] act.op = "offer"      -> [Advanced(t, act.key) EXCEPT !.offer = Standing(act, left)]
      [] act.op = "withdraw"   -> [t EXCEPT !.offer = NoOffer]

\* The new shards of a split: acknowledged progress of the parent stays acknowledged.
Born(t, act, births) ==
    [n \in 1..Len(births) |->
        [NewTruth(births[n]) EXCEPT
            !.acked = IF act.op = "replace" /\ n = 1 THEN t.acked ELSE 0,
            !.attempts = IF Retries = Unlimited THEN 0 ELSE Min(t.attempts, Max(Retries - 1, 0))]]

(***************************************************************************)
(* SINK                                                                    *)
(***************************************************************************)

SinkTakes(fence, key) == fence >= sink[key].fence

\* A write after a later grant wrote the key is stale, whatever its fence.
AcceptWrite(g, key) ==
    /\ SinkTakes(grants[g].fence, key)
    /\ sink' = [sink EXCEPT ![key] = [fence |-> grants[g].fence, grant |-> g]]
    /\ broken' = broken \cup When(sink[key].grant > g, "SinkOrder")

\* A worker processes its next key: it writes the result first, and then counts the key as done.
DoKey(g) ==
    LET key == grants[g].pos + 1
    IN  /\ grants[g].frozen = NoMove
        /\ key <= grants[g].hi
        /\ AcceptWrite(g, key)
        /\ grants' = [grants EXCEPT ![g].pos = key]
        /\ UNCHANGED <<shards, truth, reached>>

\* A write arrives late or again. The write after `pos` was sent, but its sender received no reply.
LateWrite(g, key) ==
    /\ grants[g].from <= key
    /\ key <= Min(grants[g].pos + 1, grants[g].hi)
    /\ sink[key].grant # g
    /\ AcceptWrite(g, key)
    /\ UNCHANGED <<shards, grants, truth, reached>>

(***************************************************************************)
(* GRANTS                                                                  *)
(***************************************************************************)

\* The worker starts after the cursor that it received.
NewGrant(worker, s, record) ==
    LET from == IF record.cursor = 0 THEN record.lo ELSE record.cursor + 1
    IN  [worker |-> worker, shard |-> s, fence |-> record.fence, from |-> from,
         hi |-> record.hi, pos |-> from - 1, frozen |-> NoMove, sent |-> <<>>]

\* A worker received a shard that had ended, a fence that existed before, or a cursor below the
\* acknowledged one.
BreaksGrant(t, record) ==
    When(t.status # "Active", "StaleFence")
    \cup When(record.fence <= t.fence, "FenceFell")
    \cup When(record.cursor < t.acked, "Acknowledged")

\* A worker acquires a shard, and the observer records the reply.
TakeOver(worker, s, record, ahead, attempts, breaks) ==
    /\ Len(grants) < GrantsMax
    /\ grants' = Append(grants, NewGrant(worker, s, record))
    /\ shards' = [shards EXCEPT ![s] = record]
    /\ truth' = [truth EXCEPT ![s].last = Len(grants) + 1, ![s].deadline = Lease + ahead,
                              ![s].fence = Max(@, record.fence), ![s].offer = NoOffer,
                              ![s].attempts = attempts, ![s].seq = 0]
    /\ broken' = broken \cup breaks \cup BreaksGrant(truth[s], record)
    /\ reached' = reached \cup Progress(shards')
    /\ UNCHANGED sink

UsedUp(t) == Retries # Unlimited /\ t.attempts > Retries

\* Without an offer a takeover requires an expired lease and remaining attempts.
AcquireShard(worker, s, ahead) ==
    LET d == Acquire(shards[s], worker, ahead)
        t == truth[s]
    IN  /\ d.kind = "commit"
        /\ d.answer = "granted"
        /\ TakeOver(worker, s, d.shard, ahead, Count(t.attempts + 1),
                    When(IsHeld(t, ahead), "TwoOwners") \cup When(UsedUp(t), "Attempts"))

\* An acquire parks a shard that has used up its attempts.
GiveUpShard(worker, s, ahead) ==
    LET d == Acquire(shards[s], worker, ahead)
        t == truth[s]
    IN  /\ d.kind = "commit"
        /\ d.answer = "gave up"
        /\ shards' = [shards EXCEPT ![s] = d.shard]
        /\ truth' = [truth EXCEPT ![s] = Ended(@, "Parked")]
        /\ broken' = broken \cup When(IsHeld(t, ahead), "TwoOwners")
                            \cup When(~UsedUp(t), "Attempts")
                            \cup BreaksEnd(t, "Active")
        /\ reached' = reached \cup Progress(shards')
        /\ UNCHANGED <<grants, sink>>

\* Progress of the holder of a shard under its lease; 0 if it has done nothing.
DoneUnder(g) == IF g = 0 \/ grants[g].pos < grants[g].from THEN 0 ELSE grants[g].pos

\* An offer is accepted by its destination, in time, while it is open, and redoes no key.
BreaksAccept(t, worker, move, record, ahead) ==
    LET agreed == /\ t.offer # NoOffer
                  /\ t.offer.move = move
                  /\ t.offer.to = worker
                  /\ t.offer.left > ahead
    IN  When(~agreed, "Handoff")
        \cup When(agreed /\ DoneUnder(t.last) > record.cursor, "MoveRedoesNothing")

\* A handoff does not count as a new attempt.
AcceptShard(worker, s, move, ahead) ==
    LET d == Accept(shards[s], worker, move, ahead)
        t == truth[s]
    IN  /\ d.kind = "commit"
        /\ TakeOver(worker, s, d.shard, ahead, t.attempts,
                    BreaksAccept(t, worker, move, d.shard, ahead))

(***************************************************************************)
(* RENEWALS carry no operation id; a delayed renewal renews late.          *)
(***************************************************************************)

RenewLease(g, ahead) ==
    LET s == grants[g].shard
        d == Renew(shards[s], grants[g], ahead)
        t == truth[s]
        executed == d.kind = "commit"
    IN  /\ IF executed
           THEN /\ shards' = [shards EXCEPT ![s] = d.shard]
                /\ truth' = [truth EXCEPT ![s].deadline = d.answer]
           ELSE UNCHANGED <<shards, truth>>
        /\ broken' = broken \cup BreaksLease(t, g, d, ahead)
                            \cup When(executed /\ d.answer < t.deadline, "Acknowledged")
        /\ UNCHANGED <<grants, sink, reached>>

(***************************************************************************)
(* MESSAGES under a lease                                                  *)
(***************************************************************************)

\* Keys that a worker may report as its cursor: it wrote them and received the acknowledgement.
ClaimedKeys(lease) == lease.from..lease.pos

\* A worker completes a shard when it has done the last key of the range that it knows.
CompletedKeys(lease) == IF lease.pos >= lease.hi THEN {lease.hi} ELSE {}

\* Split points of a worker's remaining range; each part has a key.
Cuts(lease) == {k \in Keys : lease.from <= k /\ k < lease.hi}

\* Handoffs that were offered under a lease.
OfferedMoves(lease) ==
    {lease.sent[n].act.move : n \in {n \in 1..Len(lease.sent) : lease.sent[n].act.op = "offer"}}

\* The messages that a worker may send, or may have sent before, by operation.
Acts(g, op) ==
    LET lease == grants[g]
    IN  CASE op = "checkpoint" -> {[op |-> op, key |-> k] : k \in ClaimedKeys(lease)}
          [] op = "complete" -> {[op |-> op, key |-> k] : k \in CompletedKeys(lease)}
          [] op = "park" -> {[op |-> op]}
          [] op = "release" ->
                {[op |-> op, clean |-> c] : c \in IF Retries = Unlimited THEN {TRUE} ELSE BOOLEAN}
          [] op = "replace" ->
                \* With the stored cursor, or without one, which may be wrong.
                {[op |-> op, cut |-> cut, hi |-> lease.hi, carried |-> carried] :
                    cut \in Cuts(lease), carried \in {0, shards[lease.shard].cursor}}
          [] op = "residual" -> {[op |-> op, cut |-> cut, hi |-> lease.hi] : cut \in Cuts(lease)}
          [] op = "offer" -> {[op |-> "withdraw", move |-> m] : m \in OfferedMoves(lease)}
          [] op \in {"renew", "unpark", "revoke"} -> {}

\* Operation ids are derived from the lease and a sequence number, so that a later lease is never
\* answered from an earlier one's log. A careless worker reuses the first one.
OpIds(g) ==
    LET next == Len(grants[g].sent) + 1
    IN  {[grant |-> g, n |-> n] : n \in IF Careless THEN {1, next} ELSE {next}}

\* Every handoff has a unique id.
FreshMoves == {m \in Moves : \A g \in GrantIds : m \notin OfferedMoves(grants[g])}

\* From the moment it sends its offer the source is frozen: it processes no more keys.
FrozenBy(move) == move

\* The offer carries the final cursor, or none if no key was done.
SendOffer(g, move, to) ==
    LET lease == grants[g]
        key == IF lease.pos >= lease.from THEN lease.pos ELSE 0
        act == [op |-> "offer", move |-> move, to |-> to, key |-> key]
        id == [grant |-> g, n |-> Len(lease.sent) + 1]
    IN  /\ Len(lease.sent) < SendsMax
        /\ lease.frozen = NoMove
        /\ grants' = [grants EXCEPT
                ![g].frozen = FrozenBy(move),
                ![g].sent = Append(@, [id |-> id, act |-> act, left |-> OfferTime])]
        /\ UNCHANGED <<shards, sink, truth, reached, broken>>

\* The information in a reply that is not a rejection: the right part of the range belongs to
\* another shard, or the offer is withdrawn. A reply about an earlier offer does not unfreeze the
\* worker.
Hear(lease, act) ==
    [lease EXCEPT
        !.hi = IF act.op = "residual" THEN Min(@, act.cut) ELSE @,
        !.frozen = IF act.op = "withdraw" /\ @ = act.move THEN NoMove ELSE @]

\* Whether a reply is received matters only where it carries information.
Replies(act) == IF act.op \in {"residual", "withdraw"} THEN BOOLEAN ELSE {FALSE}

\* The store's result for a changed shard, and for new shards.
Stored(old, new, act) == new
StoredBirths(births, act) == births

\* Decides a message of a lease. `sent` is the worker's list of sent messages afterwards.
Arrive(g, id, act, left, ahead, heard, sent) ==
    LET lease == grants[g]
        s == lease.shard
        d == Decide(shards[s], lease, id, act, left, Len(shards), ahead)
        t == truth[s]
    IN  /\ IF d.kind = "commit"
           THEN LET births == StoredBirths(d.births, act)
                IN  /\ shards' = [shards EXCEPT ![s] = Stored(@, d.shard, act)] \o births
                    /\ truth' = [truth EXCEPT
                            ![s] = [Recall(Learned(t, act, left), id, act, d.answer)
                                        EXCEPT !.seq = IF Sequenced THEN id.n ELSE 0]]
                                  \o Born(t, act, births)
                    /\ reached' = reached \cup Progress(shards')
           ELSE UNCHANGED <<shards, truth, reached>>
        /\ grants' = IF d.kind = "refuse" THEN grants
                     ELSE [grants EXCEPT ![g] =
                        [IF heard THEN Hear(@, act) ELSE @ EXCEPT !.sent = sent]]
        /\ broken' = broken \cup BreaksHeld(t, g, id, act, left, d, ahead)
        /\ UNCHANGED sink

\* A message arrives for the first time. A rejected one has no effect and is not kept.
ArriveFirst(g, act, id, ahead, heard) ==
    /\ Len(grants[g].sent) < SendsMax
    /\ Arrive(g, id, act, Past, ahead, heard,
              Append(grants[g].sent, [id |-> id, act |-> act, left |-> Past]))

\* A message arrives again; an offer possibly for the first time.
ArriveAgain(g, n, ahead, heard) ==
    LET message == grants[g].sent[n]
    IN  Arrive(g, message.id, message.act, message.left, ahead, heard, grants[g].sent)

(***************************************************************************)
(* ADMINISTRATORS                                                          *)
(***************************************************************************)

\* The effect of an administrator's executed operation on the history.
LearnedAdmin(t, act, fence) ==
    LET free == [Freed(t) EXCEPT !.fence = Max(@, fence)]
    IN  IF act.op = "unpark" THEN [free EXCEPT !.attempts = 0, !.status = "Active"] ELSE free

AdminNeeds(op) == IF op = "unpark" THEN "Parked" ELSE "Active"

AdminAct(s, op, n) ==
    LET id == [grant |-> 0, n |-> n]
        act == [op |-> op]
        d == DecideAdmin(shards[s], id, act)
        t == truth[s]
    IN  /\ op \in Operations
        /\ IF d.kind = "commit"
           THEN /\ shards' = [shards EXCEPT ![s] = d.shard]
                /\ truth' = [truth EXCEPT
                        ![s] = Recall(LearnedAdmin(t, act, d.shard.fence), id, act, {})]
                /\ reached' = reached \cup Progress(shards')
                /\ broken' = broken \cup BreaksReplay(t, id, act, Past, d)
                                    \cup When(d.shard.fence <= t.fence, "FenceFell")
                                    \cup BreaksEnd(t, AdminNeeds(op))
           ELSE /\ broken' = broken \cup BreaksReplay(t, id, act, Past, d)
                /\ UNCHANGED <<shards, truth, reached>>
        /\ UNCHANGED <<grants, sink>>

(***************************************************************************)
(* TIME                                                                    *)
(***************************************************************************)

Later(left, floor) == Max(left - 1, floor)

LaterOffer(offer) ==
    IF offer = NoOffer THEN NoOffer ELSE [offer EXCEPT !.left = Later(@, LongPast)]

Tick ==
    /\ shards' = [s \in ShardIds |->
            [shards[s] EXCEPT !.left = Later(@, Past), !.offer = LaterOffer(@)]]
    /\ truth' = [s \in ShardIds |->
            [truth[s] EXCEPT !.deadline = Later(@, Past), !.offer = LaterOffer(@)]]
    /\ grants' = [g \in GrantIds |-> [grants[g] EXCEPT !.sent = [n \in 1..Len(@) |->
            IF @[n].act.op = "offer" THEN [@[n] EXCEPT !.left = Later(@, LongPast)] ELSE @[n]]]]
    /\ UNCHANGED <<sink, reached, broken>>

(***************************************************************************)
(* The specification                                                       *)
(***************************************************************************)

WorkerStep(g) ==
    \/ DoKey(g)
    \/ \E key \in Keys : LateWrite(g, key)
    \/ "renew" \in Operations /\ \E ahead \in Clocks : RenewLease(g, ahead)
    \/ "offer" \in Operations /\ \E move \in FreshMoves, to \in Workers : SendOffer(g, move, to)
    \/ \E ahead \in Clocks :
        \/ \E op \in Operations : \E act \in Acts(g, op) : \E id \in OpIds(g) :
            \E heard \in Replies(act) : ArriveFirst(g, act, id, ahead, heard)
        \/ \E n \in 1..Len(grants[g].sent) :
            \E heard \in Replies(grants[g].sent[n].act) : ArriveAgain(g, n, ahead, heard)

Next ==
    \/ Tick
    \/ \E g \in GrantIds : WorkerStep(g)
    \/ \E worker \in Workers, s \in ShardIds, ahead \in Clocks :
        \/ AcquireShard(worker, s, ahead)
        \/ GiveUpShard(worker, s, ahead)
        \/ \E move \in Moves : AcceptShard(worker, s, move, ahead)
    \/ \E s \in ShardIds, op \in {"unpark", "revoke"}, n \in AdminIds : AdminAct(s, op, n)

Spec == Init /\ [][Next]_vars

(***************************************************************************)
(* LAWS                                                                    *)
(***************************************************************************)

\* The coordinator executes operations of the last grant of a shard only.
StaleFence == "StaleFence" \notin broken

\* The coordinator executes nothing at or after the deadline that it returned to the worker.
Expired == "Expired" \notin broken

\* A sink never accepts a write for a key after a later grant wrote it. The sink can only compare
\* fences; the observer knows the order of the grants.
SinkOrder == "SinkOrder" \notin broken

\* No shard is granted while another's lease is live, except by its own offer.
TwoOwners == "TwoOwners" \notin broken

\* An offer is accepted by its destination, in time, while it is open, and is withdrawn by its id.
Handoff == "Handoff" \notin broken

\* While an offer is open, its source can only renew and withdraw.
FrozenSource == "FrozenSource" \notin broken

\* A handoff redoes no key.
MoveRedoesNothing == "MoveRedoesNothing" \notin broken

\* A repeated operation returns its first result and is not executed again.
Replay == "Replay" \notin broken

\* A retry with other parameters is rejected.
OpIdReused == "OpIdReused" \notin broken

\* The holder of a live lease is not rejected for lack of a lease.
OwnerShutOut == "OwnerShutOut" \notin broken

\* The leaves tile the root: every key belongs to exactly one.
Tiling ==
    \A k \in Keys :
        Cardinality({s \in Leaves(shards) : shards[s].lo <= k /\ k <= shards[s].hi}) = 1

\* Every key at or below a cursor was assigned to a worker whose write was accepted.
LostKey == \A k \in Progress(shards) : sink[k] # Unwritten

\* The whole range of a shard that is done was covered.
DoneUncovered ==
    \A s \in ShardIds : shards[s].status = "Done" =>
        \A k \in shards[s].lo..shards[s].hi : sink[k] # Unwritten

\* A key at or below a cursor stays at or below one.
ProgressFell == reached \subseteq Progress(shards)

\* The store holds what it acknowledged to a worker: cursor, owner, deadline, end. An end is final,
\* except parking.
Acknowledged ==
    /\ "Acknowledged" \notin broken
    /\ \A s \in ShardIds :
        /\ shards[s].cursor = truth[s].acked
        /\ shards[s].status = truth[s].status
        /\ truth[s].last # 0 => /\ shards[s].owner = grants[truth[s].last].worker
                                /\ shards[s].left = truth[s].deadline

\* A fence never decreases, and increases with every grant, unpark and revocation.
FenceFell ==
    /\ "FenceFell" \notin broken
    /\ \A s \in ShardIds : shards[s].fence >= truth[s].fence

\* A shard without a holder is granted to any worker that acquires it, or parked if its attempts are
\* used up.
FreeShardWithheld ==
    \A s \in ShardIds, ahead \in Clocks, worker \in Workers :
        truth[s].status = "Active" /\ ~IsHeld(truth[s], ahead)
            => Acquire(shards[s], worker, ahead).kind = "commit"

\* Attempts are counted, and parking follows from the count.
Attempts ==
    /\ "Attempts" \notin broken
    /\ \A s \in ShardIds : Count(shards[s].attempts) = Count(truth[s].attempts)

\* No collection exceeds its limit.
Limit ==
    /\ Len(shards) <= ShardLimit
    /\ \A s \in ShardIds : Len(shards[s].log) <= LogCap

\* The assertions of evolve (record.rs, INV-3, INV-6, INV-9, INV-11): a shard that ended has no
\* owner, a split one has children, operation ids are unique, an offer needs a lease.
Panicked ==
    \A s \in ShardIds :
        /\ IsTerminal(shards[s]) => shards[s].owner = NoWorker
        /\ shards[s].status = "Split" => shards[s].spawned # <<>>
        /\ \A m, n \in 1..Len(shards[s].log) :
            m # n => shards[s].log[m].id # shards[s].log[n].id
        /\ IsOffered(shards[s]) => shards[s].owner # NoWorker

=============================================================================
