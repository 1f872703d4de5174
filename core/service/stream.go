package service

import evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"

// maxUnread bounds the answers that wait for a client that does not read them, of up to 256 KiB each.
const maxUnread = 64

// stream is the job's end of one client's stream: answers wait here to be sent, and the job may put the stream out.
type stream struct {
	slot    int                    // its rank, or 0 when it reports for all; set when it joins
	start   *evenstepv1.Allocation // in force when it joined
	answers chan *evenstepv1.BalanceResponse
	out     chan struct{} // closed when the job put the stream out
	err     error         // why; to be read once out is closed
}

func newStream() *stream {
	return &stream{
		answers: make(chan *evenstepv1.BalanceResponse, maxUnread),
		out:     make(chan struct{}),
	}
}
