--------------------------------- MODULE MC ---------------------------------
(***************************************************************************)
(* Definitions for TLC: the symmetric sets. Workers differ only in their   *)
(* names, and so do handoffs.                                              *)
(***************************************************************************)
EXTENDS Coordination, TLC

Symmetry == Permutations(Workers) \cup Permutations(Moves)

=============================================================================
