//! Boolean flags with a value, as upstream's: `--flag`, `--flag=false` and `--flag false`.

/// Defines flags that are true unless they are set to false.
macro_rules! switches {
    (
        $(#[$meta:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$flag_meta:meta])* $flag:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(clap::Args, Clone, Copy, Debug)]
        $visibility struct $name {
            $(
                $(#[$flag_meta])*
                #[arg(
                    long,
                    value_name = "BOOL",
                    num_args = 0..=1,
                    default_value_t = true,
                    default_missing_value = "true",
                    action = clap::ArgAction::Set
                )]
                pub(crate) $flag: bool,
            )*
        }
    };
}

switches! {
    /// Flag of commands that delete objects.
    pub(crate) struct Wait {
        /// Wait until all objects are deleted.
        wait,
    }
}
