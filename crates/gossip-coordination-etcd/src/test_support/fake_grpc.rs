//! A server that speaks gRPC and is not etcd: every question gets the same answer.

use std::sync::mpsc;
use std::thread;

use prost::Message;
use prost::bytes::{BufMut, Bytes, BytesMut};

use crate::proto::StatusResponse;

/// Listens on loopback until the process ends.
#[derive(Debug)]
pub(crate) struct FakeGrpc {
    port: u16,
}

/// What every question is answered with.
#[derive(Clone)]
enum Answer {
    Message(Bytes),
    Status(i32, String),
}

impl FakeGrpc {
    /// Refuses everything with a code and a text.
    pub(crate) fn refusing(code: i32, text: &str) -> Self {
        Self::start(Answer::Status(code, text.to_owned()))
    }

    /// Says that it is etcd of some version.
    pub(crate) fn with_version(version: &str) -> Self {
        let status = StatusResponse { version: version.to_owned(), ..StatusResponse::default() };
        Self::start(Answer::Message(Bytes::from(status.encode_to_vec())))
    }

    /// Its address for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn start(answer: Answer) -> Self {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime for one thread can be made");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
                let listener = listener.expect("loopback has free ports");
                let port = listener.local_addr().expect("it is bound").port();
                send.send(port).expect("the caller waits for the port");
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, answer.clone()));
                }
            });
        });
        Self { port: receive.recv().expect("the thread sends its port") }
    }
}

/// One connection; whatever goes wrong on it ends it.
async fn serve(stream: tokio::net::TcpStream, answer: Answer) -> Option<()> {
    let mut connection = h2::server::handshake(stream).await.ok()?;
    while let Some(request) = connection.accept().await {
        let (_, respond) = request.ok()?;
        reply(respond, answer.clone())?;
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
