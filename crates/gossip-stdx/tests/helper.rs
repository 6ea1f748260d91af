//! A helper: a child that serves this process. Alone in its file, because it counts children.
#![cfg(all(not(miri), target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "all of it is test code")]

use std::ffi::CString;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use gossip_stdx::spawn::{Command, running};

/// Nothing here takes longer, on the slowest machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[test]
fn helper_outlives_its_thread_and_is_not_counted() {
    let (its_input, mut input) = std::io::pipe().unwrap();
    let (mut output, its_output) = std::io::pipe().unwrap();
    let start = move || {
        let stderr = std::io::stderr();
        let command = Command {
            program: c"/bin/sh",
            arguments: &["sh", "-c", "read -r line; echo \"$line\""]
                .map(|word| CString::new(word).unwrap()),
            environment: &[],
            stdio: [its_input.as_fd(), its_output.as_fd(), stderr.as_fd()],
            has_session: true,
            is_helper: true,
        };
        command.spawn().unwrap()
    };
    // Until the thread has ended.
    let mut child = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
    assert_eq!(running(), 0);
    input.write_all(b"still there\n").unwrap();
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there\n");
    assert!(child.wait(MAX_WAIT).unwrap().unwrap().success());
}
