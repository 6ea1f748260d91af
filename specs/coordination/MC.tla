--------------------------------- MODULE MC ---------------------------------
(***************************************************************************)
(* What TLC needs beside the specification: which values can be exchanged  *)
(* for one another. Workers differ in nothing but their names, and so do   *)
(* planned moves.                                                          *)
(***************************************************************************)
EXTENDS Coordination, TLC

Symmetry == Permutations(Workers) \cup Permutations(Moves)

=============================================================================
