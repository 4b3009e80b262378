package interop;

/** One named expectation. It ends with a short detail worth printing, or throws what was wrong. */
final class Step {
    interface Body {
        String run(Env env) throws Exception;
    }

    final String phase;
    final String name;
    final Body body;

    Step(String phase, String name, Body body) {
        this.phase = phase;
        this.name = name;
        this.body = body;
    }
}
