------------------------------ MODULE Liveness ------------------------------
(***************************************************************************)
(* After faults stop, everything finishes.                                 *)
(*                                                                         *)
(* The same rules and messages, with assumptions about which steps         *)
(* continue to happen. The weaker they are, the more the protocol itself   *)
(* has to guarantee:                                                       *)
(*                                                                         *)
(*   - at most CrashesMax grants crash, without a trace and at any time;   *)
(*     their messages still arrive, late and duplicated;                   *)
(*   - a live worker renews in time, as far as it is allowed to, processes *)
(*     its keys, and finally completes its shard;                          *)
(*   - it repeats a request until it receives the reply that it needs;     *)
(*   - it withdraws an offer that is not open. An open one it may ignore   *)
(*     forever, and its destination may never accept: the limit on         *)
(*     renewals has to resolve that;                                       *)
(*   - only the first Restless grants take any other steps.                *)
(*                                                                         *)
(* Clocks are exact here: a clock that runs ahead makes owners lose their  *)
(* leases, which is a fault. GrantsMax and SendsMax bound the search, so   *)
(* they must be large enough for the allowed faults: if they are too       *)
(* small, TLC finds a shard that cannot finish.                            *)
(***************************************************************************)
EXTENDS Coordination

CONSTANTS CrashesMax, Restless

VARIABLE crashed    \* grants whose worker takes no more steps

liveVars == <<vars, crashed>>

Alive(g) == g \in GrantIds \ crashed

Unchanged(A) == A /\ UNCHANGED crashed

LiveInit == Init /\ crashed = {}

(***************************************************************************)
(* Faults, and optional steps of workers. None of them is required. The    *)
(* last two messages of each lease are reserved for its end.               *)
(***************************************************************************)

Crash(g) ==
    /\ Alive(g)
    /\ Cardinality(crashed) < CrashesMax
    /\ crashed' = crashed \cup {g}
    /\ UNCHANGED vars

HasSpare(g, spare) == Len(grants[g].sent) + spare < SendsMax

Disturb(g) ==
    \/ \E key \in Keys : LateWrite(g, key)
    \/ \E n \in 1..Len(grants[g].sent), heard \in BOOLEAN : ArriveAgain(g, n, 0, heard)
    \/ /\ g <= Restless
       /\ Alive(g)
       /\ HasSpare(g, 2)
       /\ \/ /\ "offer" \in Operations
             /\ \E move \in FreshMoves, to \in Workers : SendOffer(g, move, to)
          \/ \E op \in Operations \ {"complete", "offer"} :
                \E act \in Acts(g, op), id \in OpIds(g) :
                \E heard \in Replies(act) : ArriveFirst(g, act, id, 0, heard)

AcceptMove ==
    \E worker \in Workers, s \in ShardIds, move \in Moves : AcceptShard(worker, s, move, 0)

(***************************************************************************)
(* Required steps: each happens eventually                                 *)
(***************************************************************************)

\* Time advances, but a live worker renews before its lease is over.
TimelyTick ==
    /\ \A s \in ShardIds :
        LET g == truth[s].last
        IN  g # 0 /\ Alive(g) /\ shards[s].left = 1 => RenewedShard(shards[s], 0) = shards[s]
    /\ Tick

RenewInTime(g) == Alive(g) /\ RenewLease(g, 0)

\* An idle worker acquires a free shard.
AcquireFree ==
    \E worker \in Workers, s \in ShardIds : AcquireShard(worker, s, 0) \/ GiveUpShard(worker, s, 0)

WorkOn(g) == Alive(g) /\ DoKey(g)

CompleteInTheEnd(g) ==
    /\ Alive(g)
    /\ \E act \in Acts(g, "complete"), id \in OpIds(g) : ArriveFirst(g, act, id, 0, FALSE)

\* An offer that is not open is withdrawn: it is lost, late or not yet delivered.
WithdrawLost(g) ==
    /\ Alive(g)
    /\ HasSpare(g, 1)
    /\ grants[g].frozen # NoMove
    /\ ~IsOffered(shards[grants[g].shard])
    /\ \E id \in OpIds(g) :
        ArriveFirst(g, [op |-> "withdraw", move |-> grants[g].frozen], id, 0, TRUE)

\* A request is repeated until its reply is received.
HearReply(g) ==
    /\ Alive(g)
    /\ \E n \in 1..Len(grants[g].sent) :
        grants[g].sent[n].act.op \in {"residual", "withdraw"} /\ ArriveAgain(g, n, 0, TRUE)

Duty(g) == WorkOn(g) \/ CompleteInTheEnd(g) \/ WithdrawLost(g) \/ HearReply(g)

(***************************************************************************)
(* The specification                                                       *)
(***************************************************************************)

LiveNext ==
    \/ \E g \in GrantIds : Crash(g)
    \/ Unchanged(\E g \in GrantIds : Disturb(g) \/ RenewInTime(g) \/ Duty(g))
    \/ Unchanged(AcceptMove \/ TimelyTick \/ AcquireFree)

Fairness ==
    /\ WF_liveVars(Unchanged(TimelyTick))
    /\ WF_liveVars(Unchanged(AcquireFree))
    /\ \A g \in 1..GrantsMax :
        /\ WF_liveVars(Unchanged(g \in GrantIds /\ RenewInTime(g)))
        /\ WF_liveVars(Unchanged(g \in GrantIds /\ Duty(g)))

LiveSpec == LiveInit /\ [][LiveNext]_liveVars /\ Fairness

Finished == \A s \in Leaves(shards) : shards[s].status \in {"Done", "Parked"}

\* After faults stop, everything finishes.
NeverFinishes == <>[]Finished

(***************************************************************************)
(* Mutations, in the form that Mutations.tla describes                     *)
(***************************************************************************)

\* MUTATION of RenewalLimit in liveness breaks NeverFinishes
\* A source that ignores its offer holds a frozen shard forever.
RenewsFrozenForever(s, wanted) == wanted

\* MUTATION of LeaseIsLive in liveness breaks NeverFinishes
\* The shard of a crashed owner is never free.
CrashedOwnerHolds(s, ahead) == s.owner # NoWorker

=============================================================================
