------------------------------ MODULE Liveness ------------------------------
(***************************************************************************)
(* After faults stop, everything finishes.                                 *)
(*                                                                         *)
(* The same rules and messages, with assumptions about who goes on. The    *)
(* weaker they are, the more the protocol has to do by itself:             *)
(*                                                                         *)
(*   - at most CrashesMax grants crash, without a trace and at any time;   *)
(*     what they sent still arrives, late and again;                       *)
(*   - a worker that lives renews in time, as far as it is allowed to,     *)
(*     does its keys, and completes its shard in the end;                  *)
(*   - it repeats a request until it hears the reply that it needs;        *)
(*   - it withdraws an offer that does not stand. One that stands it may   *)
(*     forget for ever, and its destination may never come: the bound on   *)
(*     renewals has to see to that;                                        *)
(*   - only the first Restless grants do anything else.                    *)
(*                                                                         *)
(* Clocks are exact here: a clock that runs ahead makes owners lose their  *)
(* leases, which is a fault. GrantsMax and SendsMax bound the search, so   *)
(* they must leave room for the faults that are allowed: with too few of   *)
(* them TLC would find a shard that cannot finish.                         *)
(***************************************************************************)
EXTENDS Coordination

CONSTANTS CrashesMax, Restless

VARIABLE crashed    \* grants whose worker does nothing more

liveVars == <<vars, crashed>>

Alive(g) == g \in GrantIds \ crashed

Unchanged(A) == A /\ UNCHANGED crashed

LiveInit == Init /\ crashed = {}

(***************************************************************************)
(* Faults, and what workers do besides their work. Nobody has to do any of *)
(* this. The last two messages of each lease are kept for its end.         *)
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
(* What somebody has to do, sooner or later                                *)
(***************************************************************************)

\* Time goes on, but a worker that lives renews before its lease is over.
TimelyTick ==
    /\ \A s \in ShardIds :
        LET g == truth[s].last
        IN  g # 0 /\ Alive(g) /\ shards[s].left = 1 => RenewedShard(shards[s], 0) = shards[s]
    /\ Tick

RenewInTime(g) == Alive(g) /\ RenewLease(g, 0)

\* An idle worker takes what is free.
AcquireFree ==
    \E worker \in Workers, s \in ShardIds : AcquireShard(worker, s, 0) \/ GiveUpShard(worker, s, 0)

WorkOn(g) == Alive(g) /\ DoKey(g)

CompleteInTheEnd(g) ==
    /\ Alive(g)
    /\ \E act \in Acts(g, "complete"), id \in OpIds(g) : ArriveFirst(g, act, id, 0, FALSE)

\* An offer that does not stand is withdrawn: it is lost, late or not yet there.
WithdrawLost(g) ==
    /\ Alive(g)
    /\ HasSpare(g, 1)
    /\ grants[g].frozen # NoMove
    /\ ~IsOffered(shards[grants[g].shard])
    /\ \E id \in OpIds(g) :
        ArriveFirst(g, [op |-> "withdraw", move |-> grants[g].frozen], id, 0, TRUE)

\* A request is repeated until its reply is heard.
HearReply(g) ==
    /\ Alive(g)
    /\ \E n \in 1..Len(grants[g].sent) :
        grants[g].sent[n].act.op \in {"residual", "withdraw"} /\ ArriveAgain(g, n, 0, TRUE)

Duty(g) == WorkOn(g) \/ CompleteInTheEnd(g) \/ WithdrawLost(g) \/ HearReply(g)

(***************************************************************************)
(* The whole                                                               *)
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

\* After faults stop everything finishes.
NeverFinishes == <>[]Finished

(***************************************************************************)
(* Mutations, in the form that Mutations.tla explains                      *)
(***************************************************************************)

\* MUTATION of RenewalLimit in liveness breaks NeverFinishes
\* A source that forgets its offer holds a frozen shard for ever.
RenewsFrozenForever(s, wanted) == wanted

\* MUTATION of SomebodyHolds in liveness breaks NeverFinishes
\* The shard of a crashed owner is never free.
CrashedOwnerHolds(s, ahead) == s.owner # Nobody

=============================================================================
