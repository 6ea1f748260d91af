//! A server that speaks gRPC and is not etcd: every question gets the same answer, or all but the
//! first.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use gossip_coordination_etcd::proto::StatusResponse;
use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};

/// Listens on loopback until the process ends.
#[derive(Debug)]
pub(crate) struct FakeGrpc {
    port: u16,
    asked: Arc<AtomicUsize>,
}

/// What a question is answered with.
#[derive(Clone)]
enum Answer {
    Message(Bytes),
    Status(i32, String),
    /// Its stream is reset.
    Reset,
}

/// What the first question of a connection, and what every other is answered with.
#[derive(Clone)]
struct Answers {
    first: Answer,
    others: Answer,
}

impl FakeGrpc {
    /// Refuses everything with a code and a text.
    pub(crate) fn refusing(code: i32, text: &str) -> Self {
        let answer = Answer::Status(code, text.to_owned());
        Self::start(Answers { first: answer.clone(), others: answer })
    }

    /// Says that it is etcd of some version.
    pub(crate) fn with_version(version: &str) -> Self {
        Self::start(Answers { first: version_answer(version), others: version_answer(version) })
    }

    /// Says that it is etcd of some version, and resets the stream of every question that follows.
    pub(crate) fn resetting(version: &str) -> Self {
        Self::start(Answers { first: version_answer(version), others: Answer::Reset })
    }

    /// Says that it is etcd of some version, and refuses every question that follows.
    pub(crate) fn refusing_after(version: &str, code: i32, text: &str) -> Self {
        let others = Answer::Status(code, text.to_owned());
        Self::start(Answers { first: version_answer(version), others })
    }

    /// Refuses the first question of a connection, and says that it is etcd of some version in the
    /// answer to every other.
    pub(crate) fn refusing_first(code: i32, text: &str, version: &str) -> Self {
        let first = Answer::Status(code, text.to_owned());
        Self::start(Answers { first, others: version_answer(version) })
    }

    /// How many questions it was asked.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Its address for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn start(answers: Answers) -> Self {
        let (send, receive) = mpsc::channel();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for one thread can be made");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
                let listener = listener.expect("loopback has free ports");
                let port = listener.local_addr().expect("it is bound").port();
                send.send(port).expect("the caller waits for the port");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, answers.clone(), Arc::clone(&counter)));
                }
            });
        });
        Self { port: receive.recv().expect("the thread sends its port"), asked }
    }
}

fn version_answer(version: &str) -> Answer {
    let status = StatusResponse { version: version.to_owned(), ..StatusResponse::default() };
    Answer::Message(Bytes::from(status.encode_to_vec()))
}

/// One connection; whatever goes wrong on it ends it.
async fn serve(
    stream: tokio::net::TcpStream,
    answers: Answers,
    asked: Arc<AtomicUsize>,
) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    let mut next = answers.first;
    while let Some(request) = connection.accept().await {
        let (_, respond) = request.ok()?;
        asked.fetch_add(1, Ordering::SeqCst);
        reply(respond, std::mem::replace(&mut next, answers.others.clone()))?;
    }
    Some(())
}

fn reply(mut respond: h2::server::SendResponse<Bytes>, answer: Answer) -> Option<()> {
    let head = http::Response::builder().header("content-type", "application/grpc");
    let head = head.body(()).ok()?;
    let mut stream = respond.send_response(head, false).ok()?;
    let (code, text) = match answer {
        Answer::Message(message) => {
            stream.send_data(framed(&message), false).ok()?;
            (0, String::new())
        }
        Answer::Status(code, text) => (code, text),
        Answer::Reset => {
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
            return Some(());
        }
    };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", code.into());
    trailers.insert("grpc-message", text.parse().ok()?);
    stream.send_trailers(trailers).ok()
}

/// Not compressed, and how long it is.
fn framed(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.put_slice(message);
    frame.freeze()
}
