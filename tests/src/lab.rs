//! Clusters, nodes and pods as network namespaces.
//!
//! Everything a laboratory creates carries its id: namespaces
//! `lq-<id>-<name>`, instances of our processes `lq-<id>-<name>`, and the run
//! directory `/run/liqo-lab/<id>`. So laboratories do not meet each other, and
//! what a crashed one left behind is found by name: see [`clean()`].

mod clean;
mod identity;
pub mod link;
pub mod netns;
pub mod wait;

pub use clean::{clean, clean_crashed, clean_on_signal};
pub use identity::Identity;
