//! The verbs of `liqoctl VERB KIND`, and how a kind declares those that apply to it.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;

use crate::global::Global;
use anyhow::Result;
use clap::{ArgMatches, Args, Command, Error};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use std::fmt::Debug;

/// An operation on objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Writes an object to the API server, or prints it.
    Create,
    /// Prints an object that describes this cluster to a peer.
    Generate,
    /// Prints objects of the API server.
    Get,
    /// Deletes an object.
    Delete,
    /// Lets a consumer use resources again.
    Activate,
    /// Refuses new resources, and keeps those that are granted.
    Cordon,
    /// Reverts [`Verb::Cordon`].
    Uncordon,
    /// Revokes the resources of a consumer.
    Drain,
}

impl Verb {
    /// All verbs, in the order of the help page.
    pub(crate) const ALL: [Self; 8] = [
        Self::Create,
        Self::Generate,
        Self::Get,
        Self::Delete,
        Self::Activate,
        Self::Cordon,
        Self::Uncordon,
        Self::Drain,
    ];

    /// Returns the subcommand's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Generate => "generate",
            Self::Get => "get",
            Self::Delete => "delete",
            Self::Activate => "activate",
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Drain => "drain",
        }
    }

    /// Returns the subcommand's line of the help page.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Create => "Creates an object",
            Self::Generate => "Prints an object that a peer applies",
            Self::Get => "Prints objects",
            Self::Delete => "Deletes an object",
            Self::Activate => "Lets a consumer use resources again",
            Self::Cordon => "Refuses further resources to a consumer",
            Self::Uncordon => "Reverts cordon",
            Self::Drain => "Revokes the resources of a consumer",
        }
    }
}

/// The flags of a command that can be run.
pub(crate) trait Run: Args + Debug {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Returns an error that names the cause and the remedy.
    async fn run(self, global: &Global) -> Result<()>;
}

/// A command whose flags have been parsed.
pub(crate) trait Parsed: Debug {
    /// Runs the command.
    fn run<'a>(self: Box<Self>, global: &'a Global) -> LocalBoxFuture<'a, Result<()>>
    where
        Self: 'a;
}

impl<R: Run> Parsed for R {
    fn run<'a>(self: Box<Self>, global: &'a Global) -> LocalBoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Run::run(*self, global).boxed_local()
    }
}

/// One verb of a kind: its flags, help and implementation.
pub(crate) struct Action {
    /// The verb.
    pub(crate) verb: Verb,
    about: &'static str,
    example: &'static str,
    add_flags: fn(Command) -> Command,
    parse: fn(&ArgMatches) -> Result<Box<dyn Parsed>, Error>,
}

impl Action {
    /// Returns the action with the flags and the implementation of `R`.
    ///
    /// `about` is a sentence with its period; `example` is a complete command line.
    pub(crate) const fn new<R: Run + 'static>(
        verb: Verb,
        about: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            verb,
            about,
            example,
            add_flags: R::augment_args,
            parse: |matches| Ok(Box::new(R::from_arg_matches(matches)?)),
        }
    }

    /// Returns the subcommand `name`.
    pub(crate) fn command(&self, name: &'static str, aliases: &'static [&'static str]) -> Command {
        let long = format!("{}\n\nExample: {}", self.about, self.example);

        (self.add_flags)(Command::new(name))
            .visible_aliases(aliases)
            .about(self.about.trim_end_matches('.'))
            .long_about(long)
    }

    /// Returns the command with the flags in `matches`.
    ///
    /// # Errors
    ///
    /// Returns an error if a flag is invalid.
    pub(crate) fn parse(&self, matches: &ArgMatches) -> Result<Box<dyn Parsed>, Error> {
        (self.parse)(matches)
    }
}
