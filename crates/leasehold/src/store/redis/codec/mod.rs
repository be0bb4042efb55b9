//! Steps as the arguments of scripts, and answers as replies. Must never know how a step waits, or what carries it.
//!
//! | module | what it is for |
//! |---|---|
//! | [`words`] | the keys and words that the scripts and this client share |
//! | [`form`] | in which form a step is sent, and with which others |
//! | [`encode`] | writes steps as the keys and arguments of their script |
//! | [`reply`] | reads what a script answered |

pub(super) mod encode;
pub(super) mod form;
pub(super) mod reply;
pub(super) mod words;
