package frame

import "google.golang.org/grpc"

// Registrar registers services with a server in such a way that a stream interceptor sees each call before any message of it
// is read. Of itself gRPC reads the one message of a call first, however long it takes to come, and asks then.
type Registrar struct{ *grpc.Server }

// RegisterService makes a stream of each call that takes one message and answers one; on the wire that is the same. Unary
// interceptors do not see them.
func (r Registrar) RegisterService(d *grpc.ServiceDesc, service any) {
	streams := *d
	streams.Methods, streams.Streams = nil, append([]grpc.StreamDesc(nil), d.Streams...)
	for _, m := range d.Methods {
		streams.Streams = append(streams.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, ServerStreams: true,
			Handler: func(service any, s grpc.ServerStream) error {
				answer, err := m.Handler(service, s.Context(), s.RecvMsg, nil)
				if err != nil {
					return err
				}
				return s.SendMsg(answer)
			},
		})
	}
	r.Server.RegisterService(&streams, service)
}
