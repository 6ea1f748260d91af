----------------------------- MODULE Mutations -----------------------------
(***************************************************************************)
(* Deliberate bugs that the laws must detect. Each definition replaces the *)
(* one it names, in the configuration it names, and must break the law it  *)
(* names before any other:                                                 *)
(*                                                                         *)
(*     \* MUTATION of Definition in configuration breaks Law               *)
(*     \* The bug, in one sentence.                                        *)
(*                                                                         *)
(* Some add `without OtherLaw`: they show that a law alone detects a bug   *)
(* that another one would have detected sooner.                            *)
(*                                                                         *)
(* `cargo xtask tla --mutations` reads these lines. A mutation that is not *)
(* detected, or is detected by another law, is a failure.                  *)
(***************************************************************************)
EXTENDS MC

(***************************************************************************)
(* Leases                                                                  *)
(***************************************************************************)

\* MUTATION of FenceIsCurrent in leases breaks StaleFence
\* The fence is not compared, only the name of the owner.
FenceIgnored(s, lease) == TRUE

\* MUTATION of LeaseLasts in leases breaks Expired
\* A lease is still valid at its deadline.
ExpiryInclusive(s, ahead) == s.left >= ahead

\* MUTATION of LeaseLasts in clocks breaks OwnerShutOut
\* A lease ends a tick before its deadline, while no other worker may acquire the shard.
ExpiryEarly(s, ahead) == s.left > ahead + 1

\* MUTATION of LeaseIsLive in leases breaks TwoOwners
\* A shard is taken over a tick before its lease is over.
EarlyTakeover(s, ahead) == s.owner # NoWorker /\ s.left > ahead + 1

\* MUTATION of LeaseIsLive in leases breaks FreeShardWithheld
\* The shard of a dead owner is never free.
DeadOwnerHolds(s, ahead) == s.owner # NoWorker

\* MUTATION of RenewedShard in leases breaks Acknowledged
\* A renewal is acknowledged but not stored.
RenewalLost(s, ahead) == s

\* MUTATION of RenewedLeft in clocks breaks Acknowledged
\* A renewal by a clock that lags shortens the lease.
RenewalShortens(s, ahead) == RenewalLimit(s, Lease + ahead)

\* MUTATION of AcquireFence in leases breaks FenceFell
\* A grant keeps the fence.
FenceKeptByGrant(fence) == fence

\* MUTATION of AcquireFence in leases breaks StaleFence without FenceFell
\* Two grants of one worker name share a fence.
FenceShared(fence) == fence

\* MUTATION of SinkTakes in leases breaks SinkOrder
\* The sink does not compare fences.
SinkComparesNothing(fence, key) == TRUE

(***************************************************************************)
(* Cursors                                                                 *)
(***************************************************************************)

\* MUTATION of AcquiredShard in leases breaks ProgressFell
\* A new owner starts without progress.
CursorReset(s, worker, ahead) ==
    [Granted(s, worker, s.fence + 1, s.attempts + 1, ahead) EXCEPT !.cursor = 0]

\* MUTATION of CheckCursor in leases breaks ProgressFell
\* A checkpoint may move the cursor back.
CursorFalls(s, key) == IF key < s.lo \/ key > s.hi THEN "CursorOutOfBounds" ELSE "ok"

\* MUTATION of Stored in leases breaks Acknowledged
\* A checkpoint is acknowledged but not stored.
CheckpointLost(old, new, act) == IF act.op = "checkpoint" THEN old ELSE new

\* MUTATION of ClaimedKeys in leases breaks LostKey
\* A worker checkpoints a key that it has started but not written.
CursorBeforeWrite(lease) == lease.from..Min(lease.pos + 1, lease.hi)

\* MUTATION of CompletedKeys in leases breaks DoneUncovered
\* A worker completes its shard at the end of a page.
CompletedEarly(lease) == ClaimedKeys(lease)

\* MUTATION of End in leases breaks Panicked
\* The end of a shard leaves its lease in the record.
EndKeepsLease(s, status) == [s EXCEPT !.status = status]

(***************************************************************************)
(* Replays                                                                 *)
(***************************************************************************)

\* MUTATION of Decide in leases breaks Replay
\* A retry is answered only if the lease is still valid.
ReplayAfterLease(s, lease, id, act, left, shardCount, ahead) ==
    IF CheckLease(s, lease, ahead) # "ok" THEN Refuse(CheckLease(s, lease, ahead))
    ELSE IF WasExecuted(s, id, act) THEN AnswerAgain(ReplayedAnswer(s, id, act))
    ELSE OwnRules(s, lease, id, act, left, shardCount, ahead)

\* MUTATION of RememberEnd in leases breaks Replay
\* The log entry that ended a shard is not kept.
EndForgotten(s, id, act) == s

\* MUTATION of Push in retries breaks Replay
\* A full log keeps its old entries and drops the new one.
NewestForgotten(log, entry) == IF Len(log) < LogCap THEN Append(log, entry) ELSE log

\* MUTATION of Residuals in retries breaks Replay
\* A residual split that the log dropped is executed again.
ResidualForgotten(s, id) == {}

\* MUTATION of SamePayload in retries breaks OpIdReused
\* An operation id is answered from the log whatever its payload.
PayloadIgnored(s, id, act) == TRUE

(***************************************************************************)
(* Splits                                                                  *)
(***************************************************************************)

\* MUTATION of StoredBirths in splits breaks Tiling
\* The last child of a replacing split is not stored.
ChildLost(births, act) == IF act.op = "replace" THEN SubSeq(births, 1, 1) ELSE births

\* MUTATION of StoredBirths in splits breaks Tiling
\* The shard that takes the right part is not stored.
ResidualLost(births, act) == IF act.op = "residual" THEN <<>> ELSE births

\* MUTATION of ShrunkShard in splits breaks Tiling
\* The parent keeps the part that it split off.
ParentNotShrunk(s, act) == s

\* MUTATION of ChildFence in splits breaks SinkOrder
\* Children start at the first fence instead of their parent's.
ChildFenceRestarts(fence) == FirstFence

\* MUTATION of CarriesCursor in splits breaks ProgressFell
\* The child that contains the cursor may start without progress.
ChildForgetsProgress(s, act) == s.cursor <= act.cut

\* MUTATION of KeepsProgress in splits breaks ProgressFell
\* A residual split cuts through completed keys.
CutBehindCursor(s, act) == TRUE

\* MUTATION of HasRoom in splits breaks Limit
\* The limit on shards is not checked.
LimitIgnored(shardCount, births) == TRUE

(***************************************************************************)
(* Parking and attempts                                                    *)
(***************************************************************************)

\* MUTATION of UnparkFence in parking breaks FenceFell
\* An unparked shard keeps its fence.
FenceReusedAfterUnpark(fence) == fence

\* MUTATION of RevokeFence in parking breaks FenceFell
\* A revoked shard keeps its fence.
FenceReusedAfterRevoke(fence) == fence

\* MUTATION of UnparkFence in parking breaks SinkOrder without FenceFell
\* A shard is unparked with an older fence.
FenceOfAnOldLife(fence) == fence - 1

\* MUTATION of IsUsedUp in parking breaks Attempts
\* A shard that has used up its attempts is granted again.
AttemptsForgotten(s) == FALSE

\* MUTATION of AttemptsAfterRelease in parking breaks Attempts
\* A failed release does not count as an attempt.
FailureForgiven(s, act) == Max(s.attempts - 1, 0)

(***************************************************************************)
(* The end of a shard                                                      *)
(***************************************************************************)

\* MUTATION of MayBeUnparked in parking breaks Acknowledged
\* A shard that is done can be unparked.
DoneIsUnparked(s) == s.status \in {"Parked", "Done"}

\* MUTATION of MayBeGranted in parking breaks StaleFence
\* A shard that is done is granted again.
DoneIsGranted(s) == s.status \in {"Active", "Done"}

\* MUTATION of MayBeUnparked in everything breaks Acknowledged without Tiling
\* A shard that was replaced by its children can be unparked.
SplitIsUnparked(s) == s.status \in {"Parked", "Split"}

\* MUTATION of MayBeGranted in splits breaks StaleFence
\* A shard that was replaced by its children is granted beside them.
SplitIsGranted(s) == s.status \in {"Active", "Split"}

(***************************************************************************)
(* Sequences                                                               *)
(***************************************************************************)

\* MUTATION of WasOvertaken in sequence breaks Replay
\* A duplicate that the log dropped is executed again, although its sequence shows it.
OverdueExecuted(s, id) == FALSE

\* MUTATION of RestartedSequence in sequence breaks OwnerShutOut
\* A grant keeps the sequence of the lease before it.
SequenceOutlivesLease(seq) == seq

(***************************************************************************)
(* Handoffs                                                                *)
(***************************************************************************)

\* MUTATION of IsDestination in moves breaks Handoff
\* Any worker may accept an offer.
AcceptedByAnybody(offer, worker) == TRUE

\* MUTATION of OfferIsOpen in moves breaks Handoff
\* An offer can be accepted after its deadline.
AcceptedLate(offer, ahead) == TRUE

\* MUTATION of CheckNoOffer in moves breaks FrozenSource
\* An offer does not freeze its source.
SourceNotFrozen(s) == "ok"

\* MUTATION of FrozenBy in moves breaks MoveRedoesNothing
\* The source continues to process keys after it sent its offer.
SourceWorksOn(move) == NoMove

\* MUTATION of AcceptFence in moves breaks FenceFell
\* An accepted handoff keeps the fence.
FenceKeptByMove(fence) == fence

\* MUTATION of AcceptFence in moves breaks SinkOrder without FenceFell
\* The source and the destination of a handoff share a fence.
FenceSharedByMove(fence) == fence

\* MUTATION of AcceptedShard in moves breaks Acknowledged
\* An accepted handoff is rolled back, and the old owner continues.
RollbackAfterAccept(s, worker, ahead) == [s EXCEPT !.offer = NoOffer]

\* MUTATION of WasWithdrawn in moves breaks MoveRedoesNothing
\* A late offer opens although it was withdrawn.
LateOfferStands(s, move) == FALSE

\* MUTATION of Push in moves breaks MoveRedoesNothing without Replay
\* The log is too short: it drops a withdrawal before the offer arrives.
LogTooShort(log, entry) == <<entry>>

\* MUTATION of WithdrawnShard in moves breaks Replay
\* A withdrawal is not logged.
WithdrawalForgotten(s, id, act) == [s EXCEPT !.offer = NoOffer]

=============================================================================
