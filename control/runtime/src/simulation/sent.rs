//! The requests of a simulation.

use crate::controller::Request;
use std::fmt;

/// A request that an API server has carried out.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Number of the replica that sent it.
    pub replica: usize,
    /// Its content, as the controller planned it.
    pub request: Request,
    /// Whether it succeeded.
    pub is_success: bool,
    /// Whether it succeeded, changed nothing, and its replica knew the object: it was sent twice.
    pub is_redundant: bool,
}

/// The controllers did not become quiet in time.
#[derive(Clone, Debug)]
pub struct Unsettled {
    /// The last requests before the limit, at most ten, in their order.
    pub last: Vec<Sent>,
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not quiet in time; the last requests:")?;
        for sent in &self.last {
            let (verb, replica) = (sent.request.verb(), sent.replica);
            if let Some(object) = sent.request.object() {
                write!(f, "\n{verb} {object} by replica {replica}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Unsettled {}
