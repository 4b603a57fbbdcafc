import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main classes of Apache Kafka's tools one after another in one warm JVM: a start costs a
 * second or two, a tool in here a tenth of that.
 *
 * Asked on stdin: main class, arguments, the tool's stdin, a time limit. Answered on stdout: exit
 * status, what the tool wrote to its stdout and stderr. A run's threads are told by their group. A
 * tool's exit unwinds its stack, so that it closes its clients; what that thread writes from then on
 * is lost, as it would be in a process of its own. Then its shutdown hooks run.
 */
public final class ToolRunner {
    private static final int STILL_RUNNING = -1;
    private static final int KILLED = 143;
    private static final int HOOK_LIMIT_MS = 20_000;

    private static volatile Run current;

    /** Thrown where a tool exits. */
    private static final class Exited extends Error {
        Exited() {
            super("exit", null, false, false);
        }
    }

    /** One run of one tool. */
    private static final class Run {
        final ThreadGroup threads = new ThreadGroup("run");
        final ByteArrayOutputStream out = new ByteArrayOutputStream();
        final ByteArrayOutputStream err = new ByteArrayOutputStream();
        final InputStream in;
        final List<Runnable> hooks = new CopyOnWriteArrayList<>();
        final List<Thread> exited = new CopyOnWriteArrayList<>();
        private Integer status;

        Run(InputStream in) {
            this.in = in;
        }

        /** The first one counts. */
        synchronized void end(int status) {
            if (this.status == null) {
                this.status = status;
            }
        }

        synchronized int status() {
            return status;
        }
    }

    /** The run that this thread belongs to, if it is the one under way. */
    private static Run ofThisThread() {
        Run run = current;
        return run != null && run.threads.parentOf(Thread.currentThread().getThreadGroup())
            ? run : null;
    }

    /** A stream that writes to the current run's; Scala's Console keeps the first it sees. */
    private static final class Tap extends OutputStream {
        private final boolean isError;

        Tap(boolean isError) {
            this.isError = isError;
        }

        @Override
        public void write(int octet) {
            write(new byte[] {(byte) octet}, 0, 1);
        }

        @Override
        public void write(byte[] bytes, int start, int length) {
            Run run = ofThisThread();
            if (run == null || run.exited.contains(Thread.currentThread())) {
                return;
            }
            ByteArrayOutputStream stream = isError ? run.err : run.out;
            synchronized (stream) {
                stream.write(bytes, start, length);
            }
        }
    }

    /** A tool may close its stdout; the next one has it too. */
    private static final class LastingStream extends PrintStream {
        LastingStream(OutputStream stream) {
            super(stream, true, StandardCharsets.UTF_8);
        }

        @Override
        public void close() {
            flush();
        }
    }

    private static void exit(int status) {
        Run run = ofThisThread();
        if (run != null) {
            run.end(status);
            run.exited.add(Thread.currentThread());
        }
        throw new Exited();
    }

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new LastingStream(new Tap(false)));
        System.setErr(new LastingStream(new Tap(true)));
        System.setIn(new InputStream() {
            @Override
            public int read() throws java.io.IOException {
                return current.in.read();
            }

            @Override
            public int read(byte[] bytes, int start, int length) throws java.io.IOException {
                return current.in.read(bytes, start, length);
            }
        });
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> current.hooks.add(hook));
        while (true) {
            int count = requests.readInt();
            if (count == 0) {
                return;
            }
            List<String> words = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                words.add(new String(readBytes(requests), StandardCharsets.UTF_8));
            }
            Run run = new Run(new java.io.ByteArrayInputStream(readBytes(requests)));
            int limitMs = requests.readInt();
            boolean isStoppedAtLimit = requests.readBoolean();
            run(run, words, limitMs, isStoppedAtLimit);
            answers.writeInt(run.status());
            writeBytes(answers, run.out);
            writeBytes(answers, run.err);
            answers.flush();
        }
    }

    private static void run(Run run, List<String> words, int limitMs, boolean isStoppedAtLimit)
            throws Exception {
        current = run;
        String[] arguments = words.subList(1, words.size()).toArray(new String[0]);
        Thread main = start(run, () -> call(run, words.get(0), arguments));
        main.join(limitMs);
        if (main.isAlive()) {
            run.end(isStoppedAtLimit ? KILLED : STILL_RUNNING);
        }
        takeJvmHooks(run);
        for (Runnable hook : run.hooks) {
            start(run, hook).join(HOOK_LIMIT_MS);
        }
        main.join(isStoppedAtLimit ? HOOK_LIMIT_MS : 1);
        current = null;
        run.threads.interrupt();
    }

    /** The hooks that a tool left with the JVM itself. */
    @SuppressWarnings("unchecked")
    private static void takeJvmHooks(Run run) throws ReflectiveOperationException {
        Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
        field.setAccessible(true);
        Map<Thread, Thread> hooks = (Map<Thread, Thread>) field.get(null);
        for (Thread hook : new ArrayList<>(hooks.keySet())) {
            if (hook.getThreadGroup() == run.threads) {
                Runtime.getRuntime().removeShutdownHook(hook);
                run.hooks.add(hook);
            }
        }
    }

    private static Thread start(Run run, Runnable code) {
        Thread thread = new Thread(run.threads, code);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    /** Loads the classes of a tool's package anew: some count in static fields. */
    private static final class FreshLoader extends ClassLoader {
        private final String tools;

        FreshLoader(String tool) {
            super(ToolRunner.class.getClassLoader());
            tools = tool.substring(0, tool.lastIndexOf('.') + 1);
        }

        @Override
        public Class<?> loadClass(String name) throws ClassNotFoundException {
            if (!name.startsWith(tools)) {
                return super.loadClass(name);
            }
            Class<?> known = findLoadedClass(name);
            if (known != null) {
                return known;
            }
            try (InputStream code = getResourceAsStream(name.replace('.', '/') + ".class")) {
                byte[] bytes = code.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (java.io.IOException | NullPointerException unreadable) {
                throw new ClassNotFoundException(name, unreadable);
            }
        }
    }

    private static void call(Run run, String mainClass, String[] arguments) {
        try {
            new FreshLoader(mainClass).loadClass(mainClass).getMethod("main", String[].class)
                .invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Exited)) {
                thrown.getCause().printStackTrace();
                run.end(1);
            }
        } catch (ReflectiveOperationException unknown) {
            unknown.printStackTrace();
            run.end(1);
        }
        run.end(0);
    }

    private static byte[] readBytes(DataInputStream stream) throws java.io.IOException {
        byte[] bytes = new byte[stream.readInt()];
        stream.readFully(bytes);
        return bytes;
    }

    private static void writeBytes(DataOutputStream stream, ByteArrayOutputStream bytes)
            throws java.io.IOException {
        synchronized (bytes) {
            stream.writeInt(bytes.size());
            bytes.writeTo(stream);
        }
    }
}
