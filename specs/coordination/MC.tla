--------------------------------- MODULE MC ---------------------------------
EXTENDS Coordination, TLC

Symmetry == Permutations(Workers) \cup Permutations(Moves)
=============================================================================
