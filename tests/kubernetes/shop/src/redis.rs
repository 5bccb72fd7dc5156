//! A client of Redis.

use crate::place::Place;
use crate::resp::{self, Reply};
use crate::role;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::Status;

/// The name of Redis' Service.
pub(crate) const NAME: &str = "redis-cart";

/// The time limit of a request's commands, including that of the connection. It is lower than that
/// of the call, so that the error names Redis.
const COMMAND_MAX: Duration = Duration::from_millis(1500);

/// The maximum number of bytes of an incomplete reply. A cart needs less than 8 KiB.
const REPLY_MAX: usize = 64 << 10;

/// One connection, which all requests share.
#[derive(Debug)]
pub(crate) struct Redis {
    address: String,
    connection: Mutex<Option<Connection>>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    place: Option<Place>,
}

impl Redis {
    /// Creates a client that connects with its first command.
    pub(crate) fn new() -> Self {
        Self {
            address: role::address(NAME, 6379),
            connection: Mutex::default(),
        }
    }

    /// Executes commands in their order. Returns the reply to each of them, and the place of the
    /// server.
    ///
    /// # Errors
    ///
    /// Returns an error if Redis is unreachable, or if it refuses a command.
    pub(crate) async fn execute(
        &self,
        commands: &[&[&str]],
    ) -> Result<(Vec<Reply>, Option<Place>), Status> {
        let work = async {
            let mut shared = self.connection.lock().await;
            // A connection that is taken and not put back is closed. So no later command reads the
            // reply to a command that failed or was cancelled.
            let idle = shared.take().filter(Connection::is_open);
            let mut connection = match idle {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let mut replies = Vec::with_capacity(commands.len());
            for command in commands {
                replies.push(exchange(&mut connection.stream, command).await?);
            }
            let place = connection.place.clone();
            *shared = Some(connection);

            Ok::<_, io::Error>((replies, place))
        };
        let failure = |cause: &str| {
            let message = format!("{NAME} at {} is unreachable: {cause}", self.address);
            Status::unavailable(message)
        };
        let (replies, place) = match timeout(COMMAND_MAX, work).await {
            Ok(outcome) => outcome.map_err(|error| failure(&error.to_string()))?,
            Err(_) => return Err(failure("no reply within 1.5 s")),
        };
        for reply in &replies {
            if let Reply::Error(message) = reply {
                return Err(Status::internal(format!("{NAME} refused: {message}")));
            }
        }

        Ok((replies, place))
    }

    async fn connect(&self) -> io::Result<Connection> {
        let mut stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        // The manifest sets this option, which has no effect without replicas, to the pod's place.
        let option = ["CONFIG", "GET", "replica-announce-ip"];
        let reply = exchange(&mut stream, &option).await?;
        let mut connection = Connection {
            stream,
            place: None,
        };
        if let Reply::Array(pair) = reply
            && let Some(Reply::Text(value)) = pair.get(1)
        {
            connection.place = Place::parse(value);
        }

        Ok(connection)
    }
}

impl Connection {
    /// Returns whether an idle connection is open. Redis may have restarted.
    fn is_open(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);

        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}

async fn exchange(stream: &mut TcpStream, command: &[&str]) -> io::Result<Reply> {
    stream.write_all(&resp::encode(command)).await?;
    let mut input = Vec::new();
    loop {
        match resp::parse(&input).map_err(io::Error::other)? {
            Some((reply, length)) if length == input.len() => return Ok(reply),
            Some(_) => return Err(io::Error::other("unexpected bytes after a reply")),
            None if input.len() > REPLY_MAX => {
                return Err(io::Error::other("a reply is too long"));
            }
            None => {}
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
