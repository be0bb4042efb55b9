//! Shows that the judge rejects broken histories: a sound history, and a table of edits by hand. No code of the judge builds them.

use leasehold_lab::history::{Invariant, Status};
use serde_json::{Value, json};

use crate::text::{Text, complete, invoke};

/// A sound history, in milliseconds. On `m1`, worker 1 is followed by worker 2, which is stopped until worker 3 has taken over; the
/// resource then refuses worker 2. Worker 4 is killed as holder; worker 1 goes on. On `m2` an acquire has no outcome, and a holder
/// is told of its loss.
///
/// A line of a worker has an operation, and its outcome behind the bar. The others are of the resource, the nemesis and the store.
const SOUND: &str = "\
w1 10 acquire m1 a1 | 12 ok fence 64 until 157
w1 14 read m1 a1 | 16 ok
w1 18 write m1 a1 | 20 ok
w1 40 extend m1 a1 | 42 ok until 187
w1 60 release m1 a1 | 62 ok
w1 320 acquire m1 a2 | 322 refused
w1 340 acquire m2 a3 | 400 unknown
w1 460 acquire m1 a4 | 462 ok fence 320 until 607
w1 464 read m1 a4 | 466 ok
w1 468 write m1 a4 | 470 ok
w1 480 release m1 a4 | 482 ok
w1 710 acquire m1 a5 | 712 ok fence 384 until 857
w1 730 release m1 a5 | 732 ok
w1 740 acquire m2 a6 | 745 ok fence 192 until 887
w1 750 release m2 a6 | 752 ok
w2 11 acquire m1 b1 | 64 ok fence 128 until 209
w2 70 read m1 b1 | 72 ok
w2 262 told-lost m1 b1
w2 263 write m1 b1 | 265 refused
w2 266 release m1 b1 | 268 lost
w2 711 acquire m1 b2 | 735 ok fence 448 until 880
w2 740 release m1 b2 | 742 ok
w3 90 acquire m1 c1 | 92 refused
w3 100 acquire m1 c2 | 215 ok fence 192 until 360
w3 220 read m1 c2 | 222 ok
w3 225 write m1 c2 | 227 ok
w3 240 release m1 c2 | 242 ok
w3 410 acquire m2 c3 | 412 refused
w3 560 acquire m2 c4 | 565 ok fence 64 until 707
w3 570 release m2 c4 | 572 ok
w3 580 acquire m2 c5 | 582 ok fence 128 until 727
w3 728 told-lost m2 c5
w4 300 acquire m1 d1 | 302 ok fence 256 until 447
r 15 read m1 1 fence 64 value 0 accepted true highest 64
r 19 write m1 1 fence 64 base 0 value 1 accepted true highest 64
r 71 read m1 2 fence 128 value 1 accepted true highest 128
r 221 read m1 3 fence 192 value 1 accepted true highest 192
r 226 write m1 3 fence 192 base 1 value 2 accepted true highest 192
r 264 write m1 2 fence 128 base 1 value 2 accepted false highest 192
r 465 read m1 1 fence 320 value 2 accepted true highest 320
r 469 write m1 1 fence 320 base 2 value 3 accepted true highest 320
n 80 stop-worker worker-2 until 260
n 310 kill-worker worker-4
n 500 script-flush server
n 700 calm
s 61 removed m1 by a1 whose a1
s 241 removed m1 by c2 whose c2
s 267 removed m1 by b1 whose none
";

/// More of it, before its calm. On `m3` a writer comes after two readers, and further readers after it, twice. On `m4`, with two slots,
/// worker 7 is refused, and gets a slot with a fence below that of the other slot. Then worker 5 has the whole name.
const MODES: &str = "\
w5 10 acquire m3 e1 mode shared | 12 ok fence 64 until 157
w5 30 read m3 e1 | 32 ok value 0
w5 50 read m3 e1 | 52 ok value 0
w5 60 release m3 e1 | 62 ok
w5 90 acquire m3 e2 mode shared | 92 ok fence 192 until 237
w5 94 read m3 e2 | 96 ok value 1
w5 104 release m3 e2 | 106 ok
w5 210 acquire m4 e5 mode slot/2 | 212 ok slot 1 session 5 fence 64 until 357
w5 222 read m4 e5 | 224 ok value 0
w5 226 write m4 e5 | 228 ok
w5 240 release m4 e5 | 242 ok
w5 270 acquire m4 e6 | 272 ok session 6 fence 256 until 417
w5 274 read m4 e6 | 276 ok value 0
w5 278 write m4 e6 | 280 ok
w5 284 release m4 e6 | 286 ok
w6 20 acquire m3 f1 mode shared | 22 ok fence 64 until 167
w6 34 read m3 f1 | 36 ok value 0
w6 42 acquire m3 f2 mode shared | 44 refused
w6 64 release m3 f1 | 66 ok
w6 98 acquire m3 f3 mode shared | 100 ok fence 192 until 245
w6 114 release m3 f3 | 116 ok
w6 214 acquire m4 f5 mode slot/2 | 216 ok slot 2 fence 128 until 361
w6 230 read m4 f5 | 232 ok value 0
w6 234 write m4 f5 | 236 ok
w6 262 release m4 f5 | 264 ok
w7 40 acquire m3 g1 | 72 ok fence 128 until 187
w7 74 read m3 g1 | 76 ok value 0
w7 78 write m3 g1 | 80 ok
w7 84 release m3 g1 | 86 ok
w7 130 acquire m3 g2 mode shared | 132 ok fence 256 until 277
w7 134 release m3 g2 | 136 ok
w7 218 acquire m4 g5 mode slot/2 | 220 refused
w7 244 acquire m4 g6 mode slot/2 | 246 ok slot 1 fence 100 until 391
w7 248 read m4 g6 | 250 ok value 1
w7 252 write m4 g6 | 254 ok
w7 258 release m4 g6 | 260 ok
r 31 read m3 5 fence 64 value 0 accepted true highest 64
r 35 read m3 6 fence 64 value 0 accepted true highest 64
r 51 read m3 5 fence 64 value 0 accepted true highest 64
r 75 read m3 7 fence 128 value 0 accepted true highest 128
r 79 write m3 7 fence 128 base 0 value 1 accepted true highest 128
r 95 read m3 5 fence 192 value 1 accepted true highest 192
r 223 read m4 5 slot 1 fence 64 value 0 accepted true highest 64
r 227 write m4 5 slot 1 fence 64 base 0 value 1 accepted true highest 64
r 231 read m4 6 slot 2 fence 128 value 0 accepted true highest 128
r 235 write m4 6 slot 2 fence 128 base 0 value 1 accepted true highest 128
r 249 read m4 7 slot 1 fence 100 value 1 accepted true highest 100
r 253 write m4 7 slot 1 fence 100 base 1 value 2 accepted true highest 100
r 275 read m4 5 fence 256 value 0 accepted true highest 256
r 279 write m4 5 fence 256 base 0 value 1 accepted true highest 256
";

/// Edits of the sound history, each with the status and the invariants that the judge must find, and no others. An edit replaces a text
/// that occurs once, adds a line, removes one, or takes the edits of another case.
const CASES: &str = "\
clean: the sound history
violated I1: a fence twice
  ok fence 448 => ok fence 384
violated I1: a lease without a fence
  ok fence 192 until 887 => ok until 887
violated I2: a fence that falls
  ok fence 128 until 727 => ok fence 63 until 727
violated I2: fences in the wrong order although both acquires were under way
  735 ok fence 448 => 735 ok fence 384
  712 ok fence 384 => 712 ok fence 448
violated I2: a fence that falls when the store has lost its data
  ok fence 128 until 727 => ok fence 64 until 727
  + n 575 server-start epoch 1
violated I3: two holders
  b2 | 735 => b2 | 725
violated I3: two holders, by the deadline that an extend gave
  42 ok until 187 => 42 ok until 287
  w1 60 release m1 a1 | 62 => w1 69 release m1 a1 | 69
violated I4: a stale write accepted
  fence 128 base 1 value 2 accepted false => fence 128 base 2 value 3 accepted true
  fence 320 value 2 => fence 320 value 3
  fence 320 base 2 value 3 => fence 320 base 3 value 4
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 265 ok
violated I4: a resource that forgets what it has seen
  accepted false highest 192 => accepted false highest 128
violated I5: a write on an old version
  base 2 value 3 => base 1 value 3
violated I5: a version left out
  base 2 value 3 => base 2 value 4
violated I5: a read of an old version
  fence 320 value 2 => fence 320 value 1
violated I6: another's lock removed
  whose none => whose c2
violated I7: an extend after the deadline that it names
  42 ok until 187 => 42 ok until 36
violated I7: a release that is ok after the loss
  268 lost => 268 ok
violated I8: an orphan that stays
  w3 560 acquire m2 c4 | 565 ok fence 64 until 707 => w3 601 acquire m2 c4 | 602 refused
  - w3 570 release m2 c4 | 572 ok
  w3 580 acquire m2 c5 | 582 => w3 620 acquire m2 c5 | 622
violated I8: an orphan that stays for longer than the clock was set back
  as an orphan that stays
  + n 450 clock-back server step 0.9
violated I8: an orphan that was gone when the clock was set back
  as an orphan that stays
  + n 600.5 clock-back server step 9
violated I3: two holders although the clock was only set back
  as two holders
  + n 690 clock-back server step 9
violated I3: two holders after the clock was set forward
  as two holders
  + n 690 clock-forward server step 5000
violated I3: two holders although another lock was lost between
  as two holders
  + n 720 server-start epoch 1 locks m2
violated I3: two holders while two servers had another lock
  as two holders
  + n 740 server-start epoch 1 since 700 locks m2
violated I3: two holders before two servers had the lock
  as two holders
  + n 740 server-start epoch 1 since 726 locks m1
violated I3: two holders after two servers had the lock
  as two holders
  + n 705 server-start epoch 1 since 600 locks m1
violated I2: a fence that falls while two servers have the lock
  as a fence that falls
  + n 590 server-start epoch 1 since 550 locks m2
violated I1: a fence twice although the clock was set forward between
  as a fence twice
  + n 714 clock-forward server until 715 step 5000
  n 700 calm => n 720 calm
violated I2: a fence that falls when the clock is set back
  as a fence that falls
  + n 575 clock-back server step 5000
violated I8: a refusal because of an orphan of long ago
  w1 340 acquire m2 a3 | 400 unknown => w1 120 acquire m2 a3 | 130 unknown
violated I8: a refusal because of a release that no failover took back
  + w3 520 acquire m1 c9 | 522 refused
  + n 490 failover server until 515
  + n 515 server-start epoch 1
violated I9: a holder told late
  w3 728 told-lost => w3 733 told-lost
violated I9: a stopped holder told late, but it was not stopped
  stop-worker worker-2 => stop-worker worker-4
violated I10: an acquire that takes too long
  b2 | 735 => b2 | 772
  w2 740 release m1 b2 | 742 => w2 773 release m1 b2 | 774
invalid I11: a fault that never happened
  - n 500 script-flush server
invalid I11: a fault after the calm
  n 500 script-flush => n 750 script-flush
invalid I11: a worker that did nothing
  workers 5
violated I12: a write that the resource does not know
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 265 ok
violated I12: a decision before it was asked for
  r 469 => r 467
violated I12: a decision after it was answered
  r 469 => r 471
violated I12: a read under a lease of nobody
  w2 70 read m1 b1 => w2 70 read m1 b9
violated I7: an extend that gets a lock back after its release
  w1 40 extend m1 a1 | 42 ok until 187 => w1 40 release m1 a1 | 42 ok
  w1 60 release m1 a1 => w1 60 extend m1 a1
violated I9: a holder that goes on after its deadline and is not told
  w1 468 write m1 a4 | => w1 468 write m1 a4 until 462.5 |
invalid I11: a worker that writes while it is stopped
  n 80 stop-worker => n 60 stop-worker
invalid I11: a worker that writes after it was killed
  n 310 kill-worker => n 301 kill-worker
violated I12: an extend with another fence
  42 ok until 187 => 42 ok fence 65 until 187
violated I12: a release of what was refused
  + w3 729 release m2 c3 | 730 ok
violated I13: a healthy holder loses a lease of a quorum
  nodes 3
  582 ok fence 128 until 727 => 582 ok fence 128 until 727 renews true
violated I13: a healthy holder loses a lease, and one of three nodes was unwell
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 610 unwell node-1 until 660
  + n 670 unwell node-2 until 680
violated I13: a lease that does not renew is lost before its deadline
  nodes 3
  w3 728 told-lost => w3 720 told-lost
violated I13: a release finds a lease lost before its deadline
  nodes 3
  572 ok => 572 lost
violated I13: an extend finds a lease lost before its deadline
  as a release finds a lease lost before its deadline
  + w3 568 extend m2 c4 | 569 lost
violated I13: no answer from a quorum
  nodes 3
  400 unknown => 400 unknown no_answer true
violated I13: a waiter does not get a free lock
  nodes 3
  w3 560 acquire m2 c4 => w3 420 acquire m2 c4
violated I13: a waiter waits beside another one for a free lock
  nodes 3
  + w1 420 acquire m2 a9 | 440 refused
  w3 560 acquire m2 c4 => w3 421 acquire m2 c4
violated I13: a waiter does not get a free lock, and was stopped long before, in the tolerance
  as a waiter does not get a free lock
  tolerance 200
  + n 300 stop-worker worker-3 until 305
clean: a waiter does not get a free lock, and was stopped just before
  as a waiter does not get a free lock, and was stopped long before, in the tolerance
  + n 390 stop-worker worker-3 until 395
clean: a healthy holder loses a lease while two of three nodes are unwell
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 640 unwell node-2 until 660
clean: a release finds a lease lost while two of three nodes are unwell
  as a release finds a lease lost before its deadline
  + n 560 unwell node-1 until 575
  + n 565 unwell node-2 until 570
clean: the second of two nodes is unwell while the first may be out of reach
  as a healthy holder loses a lease of a quorum
  + n 600 unwell node-1 until 650
  + n 655 unwell node-2 until 660
clean: a lease of a quorum that ends at its deadline
  nodes 3
clean: no answer from a quorum without a majority
  as no answer from a quorum
  + n 300 unwell node-1 until 350
  + n 310 unwell node-3 until 332
clean: a waiter does not get a free lock of a quorum without a majority
  as a waiter does not get a free lock
  + n 430 unwell node-1 until 500
  + n 425 unwell node-2 until 520
clean: two holders because the store lost its data
  w2 711 acquire m1 b2 | 735 => w2 724 acquire m1 b2 | 725
  + n 720 server-start epoch 1
clean: two holders while two servers had the lock
  as two holders
  + n 740 server-start epoch 1 since 700 locks m1
clean: told late, but in time for the deadline that the library had moved
  w3 728 told-lost m2 c5 => w3 738 told-lost m2 c5 until 737
clean: a deadline written down by who was stopped until long after it
  w2 263 write m1 b1 | => w2 263 write m1 b1 until 210 |
clean: a write without an outcome that the resource refused
  w2 263 write m1 b1 | 265 refused => w2 263 write m1 b1 | 263.5 unknown
clean: a refusal in the last moment of an orphan
  c3 | 412 => c3 | 559
clean: an orphan of long ago, kept by a server that was stopped
  as a refusal because of an orphan of long ago
  + n 125 stop-server server until 230
clean: a refusal because of a release that a failover took back
  + w3 520 acquire m1 c9 | 522 refused
  + n 481 failover server until 515
  + n 515 server-start epoch 1
clean: two holders because the clock was set forward
  as two holders
  + n 714 clock-forward server until 715 step 5000
  n 700 calm => n 720 calm
clean: two holders, one by a deadline of before the clock was set forward that was handed on in its process
  as two holders
  ok fence 384 until 857 => ok fence 384 until 839
  + n 690 clock-forward server step 5000
clean: an orphan that stays for as long as the clock was set back
  as an orphan that stays
  + n 450 clock-back server step 1
clean: a lease that its holder took for lost, kept by a clock that was set back
  + w3 270 acquire m1 c9 | 272 refused
  + n 150 clock-back server step 9
clean: readers, a writer, and two slots
  with modes
violated I1: a writer with the fence of the readers before it
  with modes
  g2 mode shared | 132 ok fence 256 => g2 | 132 ok fence 192
violated I1: a reader without a fence
  with modes
  132 ok fence 256 => 132 ok
clean: a reader of a quorum without a fence, which the resource refuses
  as a reader without a fence
  nodes 3
  + w7 132.5 read m3 g2 | 133.5 refused
  + r 133 read m3 7 value 1 accepted false highest 192
violated I3: a writer beside a reader of a quorum
  as a reader of a quorum without a fence, which the resource refuses
  + w5 131 acquire m3 e8 | 133 ok fence 300 until 270
  + w5 135 release m3 e8 | 136 ok
violated I1: a writer of a quorum without a fence
  as a lease without a fence
  nodes 3
violated I1: two slots with one fence
  with modes
  + w7 266 acquire m4 g7 mode slot/2 | 267 ok slot 1 fence 128 until 400
  + w7 268 release m4 g7 | 269 ok
violated I1: readers with the fence of a phase that is over
  with modes
  132 ok fence 256 => 132 ok fence 192
clean: readers with the fence of a phase that may last, since an acquire has no outcome
  as readers with the fence of a phase that is over
  + w8 113 acquire m3 f9 mode shared | 118 unknown
clean: readers with the fence of a phase that may last, since a reader has not heard yet of its grant
  as readers with the fence of a phase that is over
  + w8 113 acquire m3 f9 mode shared | 140 ok fence 256 until 290
  + w8 141 release m3 f9 | 142 ok
violated I1: readers with the fence of a phase that is over, and a reader came without an outcome later
  as readers with the fence of a phase that is over
  + w6 131 acquire m3 f9 mode shared | 133 unknown
clean: readers with the fence of a phase that may last, since its last reader was told of a loss
  as readers with the fence of a phase that is over
  w6 114 release m3 f3 | 116 ok => w6 114 release m3 f3 | 116 lost
violated I1: readers with the fence of a phase that is over, and all of its readers have left
  as readers with the fence of a phase that is over
  w5 104 release m3 e2 | 106 ok => w5 104 release m3 e2 | 120 ok
violated I2: readers that hold together with two fences
  with modes
  100 ok fence 192 => 100 ok fence 193
violated I2: a reader beside one of the phase before, behind a reader of its own phase that holds for longer
  with modes
  + w5 140 acquire m3 e8 mode shared | 142 ok fence 300 until 280
  + w5 190 release m3 e8 | 192 ok
  + w6 150 acquire m3 f8 mode shared | 195 ok fence 320 until 330
  + w6 210 release m3 f8 | 212 ok
  + w7 160 acquire m3 g8 mode shared | 170 ok fence 320 until 310
  + w7 200 release m3 g8 | 202 ok
clean: a reader after the phase before, behind a reader of its own phase that holds for longer
  as a reader beside one of the phase before, behind a reader of its own phase that holds for longer
  m3 g8 mode shared | 170 => m3 g8 mode shared | 193
violated I2: readers that follow each other with a fence that falls
  with modes
  132 ok fence 256 => 132 ok fence 191
violated I2: readers with a fence below that of the writer before them
  with modes
  132 ok fence 256 => 132 ok fence 127
clean: readers with a fence below that of the writer before them, in a phase that the store had before it lost the writer
  with modes
  132 ok fence 256 => 132 ok fence 64
  + n 120 server-start epoch 1
violated I2: readers with a fence below that of the writer before them, in a phase of after a loss
  as readers with a fence below that of the writer before them
  + n 120 server-start epoch 1
clean: readers with a fence below that of the writer before them, in a phase that an acquire without an outcome may have begun
  as readers with a fence below that of the writer before them, in a phase of after a loss
  + w8 117 acquire m3 f9 mode shared | 118 unknown
violated I2: a writer with a fence below that of the readers before it, of before a loss
  with modes
  g2 mode shared | 132 ok fence 256 => g2 | 132 ok fence 190
  + n 120 server-start epoch 1
violated I2: a slot whose fence falls
  with modes
  + w7 266 acquire m4 g7 mode slot/2 | 267 ok slot 1 fence 99 until 400
  + w7 268 release m4 g7 | 269 ok
clean: a slot whose fence is below that of another slot
  with modes
  + w7 266 acquire m4 g7 mode slot/2 | 267 ok slot 1 fence 101 until 400
  + w7 268 release m4 g7 | 269 ok
violated I2: a mutex with a fence below that of a slot of its name
  with modes
  + w7 290 acquire m4 g7 mode slot/2 | 292 ok slot 1 fence 255 until 430
violated I3: a writer beside a reader
  with modes
  g1 | 72 ok => g1 | 56 ok
violated I3: a reader beside a writer
  with modes
  w5 90 acquire m3 e2 mode shared | 92 => w5 81 acquire m3 e2 mode shared | 82
violated I3: a slot twice
  with modes
  w7 244 acquire m4 g6 mode slot/2 | 246 => w7 237 acquire m4 g6 mode slot/2 | 238
violated I3: one permit too many
  with modes
  + w8 256 acquire m4 g7 mode slot/2 | 257 ok slot 3 fence 160 until 400
  + w8 259 release m4 g7 | 261 ok
clean: as many permits as slots
  with modes
  + w8 256 acquire m4 g7 mode slot/3 | 257 ok slot 3 fence 160 until 400
  + w8 259 release m4 g7 | 261 ok
violated I3: one permit too many, although another request was for more slots
  with modes
  + w8 256 acquire m4 g7 mode slot/9 | 257 ok slot 4 fence 160 until 400
  + w6 264.5 acquire m4 f7 mode slot/2 | 265 ok slot 3 fence 170 until 400
  + w8 266 release m4 g7 | 267 ok
  + w6 266 release m4 f7 | 267 ok
violated I3: a slot twice, of requests for different numbers of slots
  with modes
  + w8 256 acquire m4 g7 mode slot/9 | 257 ok slot 2 fence 160 until 400
  + w8 259 release m4 g7 | 261 ok
violated I3: a slot that no semaphore has
  with modes
  + w8 256 acquire m4 g7 mode slot/2 | 257 ok slot 0 fence 160 until 400
  + w8 259 release m4 g7 | 261 ok
violated I3: a mutex beside a permit of its name
  with modes
  w5 270 acquire m4 e6 | 272 => w5 260 acquire m4 e6 | 261
violated I3: a permit beside a mutex of its name
  with modes
  + w7 282 acquire m4 g7 mode slot/2 | 283 ok slot 1 fence 320 until 430
violated I3: a reader beside a permit
  with modes
  + w8 256 acquire m4 g7 mode shared | 257 ok fence 192 until 380
  + w8 259 release m4 g7 | 261 ok
violated I3: a permit beside a reader
  with modes
  + w7 120 acquire m3 g7 mode shared | 121 ok fence 200 until 270
  + w6 122 acquire m3 f7 mode slot/2 | 123 ok slot 1 fence 201 until 270
  + w6 124 release m3 f7 | 125 ok
  + w7 126 release m3 g7 | 127 ok
violated I4: a slot whose resource takes the fence of another slot for its own
  with modes
  slot 1 fence 100 value 1 accepted true highest 100 => slot 1 fence 100 value 1 accepted true highest 128
violated I5: a reader that reads two versions
  with modes
  52 ok value 0 => 52 ok value 1
clean: a reader that reads two versions of a resource that asks for no fence of reads
  as a reader that reads two versions
  resource write-fenced
clean: a holder that reads two versions, and wrote between
  with modes
  + w7 81 read m3 g1 | 83 ok value 1
  + r 82 read m3 7 fence 128 value 1 accepted true highest 128
violated I5: a slot with the version of another slot
  with modes
  slot 2 fence 128 base 0 value 1 => slot 2 fence 128 base 1 value 2
violated I8: a reader that is refused beside readers only
  with modes
  w7 40 acquire m3 g1 => w7 68 acquire m3 g1
clean: a reader that is refused beside readers, when the store has lost who they are
  as a reader that is refused beside readers only
  + n 43 evict server lock m3
violated I8: a reader that is refused beside readers only, when the store has lost who holds another lock
  as a reader that is refused beside readers only
  + n 43 evict server lock m4
violated I8: a reader that is refused beside readers only, before the store has lost who they are
  as a reader that is refused beside readers only
  + n 45 evict server lock m3
violated I8: a permit that is refused while a slot is free
  with modes
  g5 mode slot/2 | 220 refused => g5 mode slot/3 | 220 refused
clean: a permit that is refused while a slot is free, since a request for fewer slots waits before it
  with modes
  + w8 217 acquire m4 h5 mode slot/2 | 247 refused
  g5 mode slot/2 | 220 refused => g5 mode slot/4 | 220 refused
violated I8: a permit that is refused while a slot is free, and a request for fewer slots came later
  with modes
  + w8 221 acquire m4 h5 mode slot/2 | 247 refused
  g5 mode slot/2 | 220 refused => g5 mode slot/4 | 220 refused
violated I8: a permit that is refused while a slot is free, and a request for fewer slots has its slot by then
  with modes
  + w8 203 acquire m4 h5 mode slot/1 | 206 ok slot 1 fence 50 until 350
  + w8 207 release m4 h5 | 209 ok
  g5 mode slot/2 | 220 refused => g5 mode slot/4 | 220 refused
violated I8: a permit that is refused while a slot is free, and a request for more slots waits before it
  with modes
  + w8 217 acquire m4 h5 mode slot/9 | 247 unknown
  g5 mode slot/2 | 220 refused => g5 mode slot/4 | 220 refused
violated I12: a write to a slot that its holder does not have
  with modes
  + w6 238 write m4 f5 | 240 refused
  + r 239 write m4 6 slot 3 fence 128 base 1 value 0 accepted false highest 128
clean: two holders because the lock was broken, with its fence
  as a writer beside a reader
  + n 55 break-lock server lock m3 fence 64 session 9
violated I3: a reader beside a writer, let into a phase after that was broken
  as two holders because the lock was broken, with its fence
  + w8 55.5 acquire m3 h1 mode shared | 57 ok session 8 fence 64 until 160
  + w8 59 release m3 h1 | 60 ok
clean: a reader beside a writer, that asked before the break of its phase was over
  as a writer beside a reader
  + w8 55.5 acquire m3 h1 mode shared | 57 ok session 8 fence 64 until 160
  + w8 59 release m3 h1 | 60 ok
  + n 55 break-lock server lock m3 fence 64 session 9 until 55.6
clean: a reader beside a writer, let into a broken phase by its process, which was in it
  as a reader beside a writer, let into a phase after that was broken
  + w8 30 acquire m3 h2 mode shared | 32 ok session 8 fence 64 until 160
  + w8 61 release m3 h2 | 62 lost
violated I3: a reader beside a writer, let into a broken phase by its process, which was in it with another lock
  as a reader beside a writer, let into a phase after that was broken
  + w8 30 acquire m5 h2 mode shared | 32 ok session 8 fence 64 until 160
  + w8 61 release m5 h2 | 62 ok
clean: a reader beside a writer, let into a broken phase by its process, in which another reader had asked
  as a reader beside a writer, let into a phase after that was broken
  + w8 50 acquire m3 h2 mode shared | 54 refused
violated I3: two holders although the lock is broken later
  as a writer beside a reader
  + n 57 break-lock server lock m3 fence 64
violated I3: two holders although another phase was broken
  as a writer beside a reader
  + n 55 break-lock server lock m3 fence 63
violated I3: two holders although another lock was broken
  as a writer beside a reader
  + n 55 break-lock server lock m4 fence 64
clean: two holders because the lock was broken, in its session
  as a slot twice
  + n 236 break-lock server lock m4 fence 1 session 5
violated I3: two holders although another session was broken
  as a slot twice
  + n 236 break-lock server lock m4 fence 1 session 6
violated I2: a lock that a process hands on after another one had it
  with modes
  + w6 287 acquire m4 f7 | 289 ok fence 320 until 430
  + w6 290 release m4 f7 | 291 ok
  + w5 292 acquire m4 e7 | 293 ok session 6 fence 257 until 417
  + w5 294 release m4 e7 | 295 lost
clean: a lock that a process hands on after another one had it, since it was broken
  as a lock that a process hands on after another one had it
  + n 285 break-lock server lock m4 fence 256 session 6
invalid: a control that shows nothing
  control true
clean I5: a control that shows a lost update
  as a write on an old version
  control true
clean I3: a control of a rung that shows two holders
  as two holders
  control true
  system P4
violated I3: a control in which a lock that is to be trusted has two holders
  as two holders
  control true
invalid I2: a control of a rung whose fences fall, which is not what it was to show
  as a fence that falls
  control true
  system P4
";

/// A worker's last line, torn when it was killed.
const TORN: &str = r#"{"ev":"invoke","proc":4,"pid":104,"op":2,"what":"re"#;

fn plan() -> Value {
    json!({"format": 1, "run": "self-test", "seed": 1, "ttl_ms": 150, "workers": 4, "locks": 2, "resource": "fenced",
        "control": false, "system": "leasehold", "planned": {"stop-worker": 1, "kill-worker": 1, "script-flush": 1},
        "bounds": {"acquire_after_calm_ms": 30, "orphan_ms": 50, "scheduling_ms": 5, "recovery_ms": 10, "idle_ms": 80}})
}

/// The cases: what must be found, the name, and the edits.
fn cases() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let mut cases = Vec::new();
    for line in CASES.lines() {
        if let Some(edit) = line.strip_prefix("  ") {
            let (_, _, edits): &mut (_, _, Vec<_>) = cases.last_mut().unwrap();
            edits.push(edit);
        } else {
            let (found, name) = line.split_once(": ").unwrap();
            cases.push((found, name, Vec::new()));
        }
    }
    cases
}

/// Makes an edit of the plan and of the lines.
fn edit(plan: &mut Value, lines: &mut String, edit: &str) {
    if let Some(other) = edit.strip_prefix("as ") {
        let cases = cases();
        let (_, _, edits) = cases.iter().find(|(_, name, _)| *name == other).unwrap();
        for each in edits {
            self::edit(plan, lines, each);
        }
    } else if edit == "with modes" {
        lines.push_str(MODES);
    } else if let Some(line) = edit.strip_prefix("+ ") {
        lines.extend([line, "\n"]);
    } else if let Some(line) = edit.strip_prefix("- ") {
        replace(lines, &format!("{line}\n"), "");
    } else if let Some((from, to)) = edit.split_once(" => ") {
        replace(lines, from, to);
    } else {
        set(plan, &edit.split(' ').collect::<Vec<_>>(), "");
    }
}

fn replace(lines: &mut String, from: &str, to: &str) {
    assert_eq!(lines.matches(from).count(), 1, "{from:?}");
    *lines = lines.replacen(from, to, 1);
}

/// Sets a field for each pair of words.
fn set(line: &mut Value, pairs: &[&str], until: &str) {
    for pair in pairs.chunks_exact(2) {
        let (key, value) = (pair[0], pair[1]);
        match key {
            "until" => line[until] = ns(value).into(),
            "locks" => line[key] = json!([value]),
            "since" => line["since_ns"] = ns(value).into(),
            "step" => line["by_ns"] = ns(value).into(),
            "tolerance" => line["bounds"]["scheduling_ms"] = value.parse::<u64>().unwrap().into(),
            _ => line[key] = serde_json::from_str(value).unwrap_or_else(|_| value.into()),
        }
    }
}

/// Milliseconds in nanoseconds.
fn ns(ms: &str) -> u64 {
    let (whole, part) = ms.split_once('.').unwrap_or((ms, ""));
    format!("{whole}{part:0<6}").parse().unwrap()
}

/// The files of a history in which each author's lines are in order of time.
fn history(plan: Value, lines: &str) -> Text {
    let mut lines: Vec<Vec<&str>> = lines.lines().map(|it| it.split(' ').collect()).collect();
    lines.sort_by_key(|words| ns(words[1]));
    let mut text = Text::new(plan);
    for (words, seq) in lines.iter().zip(1..) {
        let (at, what, rest) = (ns(words[1]), words[2], &words[3..]);
        match words[0] {
            "n" => {
                let mut line = match what {
                    "calm" | "server-start" => json!({"ev": what, "at_ns": at}),
                    "unwell" => json!({"ev": what, "target": rest[0], "at_ns": at}),
                    kind => json!({"ev": "fault", "kind": kind, "target": rest[0], "at_ns": at}),
                };
                set(&mut line, &rest[rest.len() % 2..], "until_ns");
                text.add("nemesis.jsonl", line);
            }
            "r" => {
                let proc: u64 = rest[1].parse().unwrap();
                let mut line = json!({"ev": "decision", "seq": seq, "lock": rest[0], "proc": proc, "what": what, "at_ns": at});
                set(&mut line, &rest[2..], "");
                text.add("resource.jsonl", line);
            }
            "s" => {
                let mut line = json!({"ev": what, "lock": rest[0], "at_ns": at});
                set(&mut line, &rest[1..], "");
                text.add("store.jsonl", line);
            }
            worker => worker_lines(&mut text, worker[1..].parse().unwrap(), at, what, rest),
        }
    }
    text
}

/// The lines of an operation and its end, or of a loss report.
fn worker_lines(text: &mut Text, proc: u64, at: u64, what: &str, rest: &[&str]) {
    let (lock, owner) = (rest[0], rest[1]);
    let mut parts = rest[2..].split(|word| *word == "|");
    let op = text.0.values().map(Vec::len).sum::<usize>() as u64;
    let mut begin = invoke(proc, op, what, lock, owner, at);
    if what == "told-lost" {
        begin["ev"] = what.into();
    }
    set(&mut begin, parts.next().unwrap(), "valid_until_ns");
    text.worker(proc, begin);
    if let Some(end) = parts.next() {
        let mut end_line = complete(proc, op, end[1], ns(end[0]));
        set(&mut end_line, &end[2..], "valid_until_ns");
        text.worker(proc, end_line);
    }
}

#[test]
fn broken_histories_are_rejected_for_the_right_reason() {
    let mut failures = Vec::new();
    for (expected, name, edits) in cases() {
        let (mut plan, mut lines) = (plan(), SOUND.to_owned());
        for each in edits {
            edit(&mut plan, &mut lines, each);
        }
        let mut files = history(plan, &lines).files();
        files.get_mut("worker-4.jsonl").unwrap().push_str(TORN);
        let verdict = crate::text::judged(&files).unwrap_or_else(|why| panic!("{name}: {why}"));
        let mut found = vec![match verdict.status {
            Status::Clean => "clean",
            Status::Violated => "violated",
            Status::Invalid(_) => "invalid",
        }];
        found.extend(verdict.found.keys().map(|invariant| invariant.id()));
        if found.join(" ") != expected {
            failures.push(format!("{name}: expected {expected}, and got:\n{verdict}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for invariant in Invariant::ALL {
        let broken = ["violated", "invalid"].map(|status| format!("{status} {}", invariant.id()));
        let is_broken = |(found, ..): &(&str, &str, Vec<&str>)| broken.iter().any(|it| it == found);
        assert!(cases().iter().any(is_broken), "nothing breaks {invariant}");
    }
}
