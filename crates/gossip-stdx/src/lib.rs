//! Containers.
