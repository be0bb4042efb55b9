//! How we know: experiments on the rules of Leasehold. Must never state a rule of its own: who holds a lock is asked of
//! [`leasehold_core`], and what the experiments assume of clients, servers and networks is said where it is set.
//!
//! | module | what it is for |
//! |---|---|
//! | [`scale`] | ten to a million clients that want one lock, in virtual time, beside other ways to wait |

#![forbid(unsafe_code)]

pub mod scale;
