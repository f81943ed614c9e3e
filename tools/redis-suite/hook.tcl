# Sourced by the suite's test_helper.tcl, of Redis since 7.0 and of Valkey: writes a line for each test to the file $TESTLOG,
# and goes on after what fails outside of tests. It replaces procedures of the suite, whose source stays as it is.

proc suite_log {status name message} {
    set file [open $::env(TESTLOG) a]
    set clean [string map {"\t" " " "\n" " "} [string range $message 0 400]]
    puts $file [join [list $status [string map {"\t" " " "\n" " "} $name] $clean] "\t"]
    close $file
}

# Every outcome of a test is sent to the process that counts them.
rename send_data_packet suite_send
proc send_data_packet {fd status data {elapsed 0}} {
    set lines [split $data "\n"]
    set name [lindex $lines 0]
    regsub { in tests/[a-z0-9/_-]+\.tcl$} $name "" name
    switch -- $status {
        testing {suite_log begin $data ""}
        ok {suite_log ok $data ""}
        err {
            suite_log err $name [join [lrange $lines 1 end] " "]
            # After a wrong answer the tests that follow may go on with the connection, whose handle some of them have kept.
            if {![string match "Expected*" [lindex $lines 1]] || [catch {r ping} answer] || $answer ne "PONG"} {
                catch {reconnect}
            }
        }
        ignore {suite_log ignore $data ""}
        skip {suite_log skip $data ""}
    }
    suite_send $fd $status $data $elapsed
}

# Evaluates a block command by command, as the body of the caller.
proc suite_durable {code} {
    set command ""
    foreach line [split $code "\n"] {
        append command $line "\n"
        if {![info complete $command]} continue
        if {[string trim $command] ne "" && [catch {uplevel 1 $command} error] == 1} {
            suite_log outside [string range [string trim $command] 0 80] $error
            catch {reconnect}
        }
        set command ""
    }
}

# A parameter that the server does not have, or that cannot be set, is no reason to leave out a block of tests.
rename run_external_server_test suite_external
proc run_external_server_test {code overrides} {
    set client [expr {[info commands valkey] ne "" ? "valkey" : "redis"}]
    set link [$client $::host $::port 0 $::tls]
    set known {}
    foreach {parameter value} $overrides {
        if {[catch {$link config get $parameter} found] || [llength $found] == 0} continue
        if {[catch {$link config set $parameter $value}]} continue
        $link config set $parameter [lindex $found 1]
        lappend known $parameter $value
    }
    $link close
    tailcall suite_external [list suite_durable $code] $known
}
