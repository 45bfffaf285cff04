// Command pause is the sandbox image of these tests: the process that holds a
// pod's namespaces. It also answers whoever connects to port 8080, over IPv4 or
// IPv6, with the address it sees the caller come from, so that a pod whose only
// process it is can be reached and can tell whether its traffic was translated.
// It must stay a static program without needs: its image holds nothing else.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		fmt.Fprintln(os.Stderr, "pause:", err)
		os.Exit(1)
	}
	go serve(listener)
	<-end
}

func serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			continue
		}
		// A caller that has gone meanwhile needs no answer.
		_, _ = fmt.Fprintln(conn, conn.RemoteAddr())
		_ = conn.Close()
	}
}
