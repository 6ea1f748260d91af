//! The stack on which a child runs until its `exec`.

use std::io;
use std::ptr::{self, NonNull};

use libc::c_void;

/// The child makes a few system calls and no more; 64 KiB hold a hundred of its frames.
const STACK_BYTES: usize = 64 * 1024;

/// Bytes below the stack that cannot be accessed, so that an overflow does not corrupt memory: the
/// largest page size of Linux on the processors that we know.
const GUARD_BYTES: usize = 64 * 1024;

/// Memory for a stack, with a guard below it.
pub(super) struct Stack {
    base: NonNull<c_void>,
}

impl Stack {
    /// Maps a stack with a guard below it, so that an overflow faults instead of writing elsewhere.
    pub(super) fn new() -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), GUARD_BYTES + STACK_BYTES, access, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Self { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)? };
        // SAFETY: the guard is the lower part of the mapping, which nothing uses yet.
        match unsafe { libc::mprotect(base, GUARD_BYTES, libc::PROT_NONE) } {
            0 => Ok(stack),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Returns the end of the memory: stacks grow downwards. It is aligned to a page.
    pub(super) const fn top(&self) -> *mut c_void {
        // SAFETY: one past the end of the mapping.
        unsafe { self.base.as_ptr().byte_add(GUARD_BYTES + STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no child runs on it: a child has ended its use of the
        // stack when `clone` returns.
        unsafe { libc::munmap(self.base.as_ptr(), GUARD_BYTES + STACK_BYTES) };
    }
}
