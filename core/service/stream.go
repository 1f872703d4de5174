package service

import evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"

// maxUnread bounds the answers that wait for a client that does not read them.
const maxUnread = 64

// stream is the job's end of one client's stream: answers wait here to be sent, and the job may put the stream out.
type stream struct {
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

// answer queues an answer and never waits; false when the client has left too many unread.
func (s *stream) answer(r *evenstepv1.BalanceResponse) bool {
	select {
	case s.answers <- r:
		return true
	default:
		return false
	}
}

// putOut ends the stream with err, a gRPC status. The job does it at most once, when it forgets the stream.
func (s *stream) putOut(err error) {
	s.err = err
	close(s.out)
}
